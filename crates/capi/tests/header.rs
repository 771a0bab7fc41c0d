//! The committed header is what cbindgen makes of the source.

use std::path::Path;

#[test]
fn the_header_is_fresh() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let mut made = Vec::new();
    cbindgen::generate_with_config(root, config).unwrap().write(&mut made);
    let (path, made) = (root.join("include/corrnoise.h"), String::from_utf8(made).unwrap());
    if std::env::var_os("CORRNOISE_BLESS").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    assert_eq!(
        std::fs::read_to_string(&path).unwrap_or_default(),
        made,
        "CORRNOISE_BLESS=1 writes include/corrnoise.h anew"
    );
}
