//! The text of `docs/cli.md` is that of `--help`.

#[test]
fn the_reference_is_made_of_the_help() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md");
    let expected = corrnoise_cli::markdown();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &expected).unwrap();
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    let differs = found.lines().zip(expected.lines()).position(|(found, expected)| found != expected);
    assert!(
        found == expected,
        "docs/cli.md differs from the help (line {:?}): run UPDATE_DOCS=1 cargo test -p corrnoise-cli --test docs",
        differs.map(|line| line + 1)
    );
}
