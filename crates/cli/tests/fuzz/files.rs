//! The folder that command lines work in: which files it has, and which it may have afterwards.

use crate::common::Plans;
use corrnoise::Plan;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

/// A key that only a file holds, so that no message may show it.
pub(crate) const FILE_KEY: &str = "f1e2d3c4b5a697887f6e5d4c3b2a19080f1e2d3c4b5a69788796a5b4c3d2e1f0";

pub(crate) struct Folder {
    plans: Plans,
    before: BTreeMap<OsString, Vec<u8>>,
}

impl Folder {
    pub(crate) fn new() -> Folder {
        let plans = Plans::new();
        let text = std::fs::read_to_string(plans.path("blt.json")).unwrap();
        std::fs::write(plans.path("cut.json"), &text[..text.len() / 2]).unwrap();
        std::fs::write(plans.path("edited.json"), text.replacen("0.5", "0.25", 1)).unwrap();
        std::fs::write(plans.path("noise.key"), FILE_KEY).unwrap();
        std::fs::write(plans.path("short.key"), &FILE_KEY[..40]).unwrap();
        std::fs::write(plans.path("old.npy"), b"old").unwrap();
        for (name, arguments) in [
            ("single.json", &["--steps", "9", "-s", "blt:2", "--mu", "0.5"][..]),
            (
                "poisson.json",
                &[
                    "--steps",
                    "9",
                    "-s",
                    "identity",
                    "--noise-multiplier",
                    "2",
                    "--sampling",
                    "poisson",
                    "--dataset-size",
                    "80",
                    "--batch-size",
                    "10",
                ],
            ),
        ] {
            let out = plans.text(name);
            let (code, _, stderr) = crate::common::run(&[&["plan", "--out", &out], arguments].concat());
            assert_eq!(code, 0, "{stderr}");
        }
        #[cfg(unix)]
        std::fs::set_permissions(
            plans.path("noise.key"),
            std::os::unix::fs::PermissionsExt::from_mode(0o600),
        )
        .unwrap();
        let before = content(plans.folder.path());
        Folder { plans, before }
    }

    pub(crate) fn path(&self) -> &Path {
        self.plans.folder.path()
    }

    /// The names of the files that are always there.
    pub(crate) fn names(&self) -> impl Iterator<Item = &OsString> {
        self.before.keys()
    }

    /// Fails if a file was written in part, or if a line that was refused left one; restores the folder.
    pub(crate) fn check_and_restore(&self, code: u8, said: &str) {
        let after = content(self.path());
        assert!(self.before.keys().all(|name| after.contains_key(name)), "{said} removed a file");
        let changed: Vec<_> =
            after.iter().filter(|(name, bytes)| self.before.get(*name) != Some(*bytes)).collect();
        assert!(code < 2 || changed.is_empty(), "{said} left {:?}", changed[0].0);
        assert!(changed.len() <= 1, "{said} changed {} files", changed.len());
        for (name, bytes) in changed {
            assert!(is_whole(bytes), "{said} left {name:?} in part");
            match self.before.get(name) {
                Some(old) => std::fs::write(self.path().join(name), old).unwrap(),
                None => std::fs::remove_file(self.path().join(name)).unwrap(),
            }
        }
    }
}

fn content(folder: &Path) -> BTreeMap<OsString, Vec<u8>> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name(), std::fs::read(entry.path()).unwrap())).collect()
}

/// True if the bytes are a whole plan, array or picture.
fn is_whole(bytes: &[u8]) -> bool {
    let text = std::str::from_utf8(bytes).unwrap_or("");
    let array = || {
        let header = std::str::from_utf8(bytes.get(10..)?.split(|byte| *byte == b'\n').next()?).ok()?;
        let (rows, columns) = header.split_once("'shape': (")?.1.split_once(')')?.0.split_once(", ")?;
        let values = rows.parse::<usize>().ok()? * columns.parse::<usize>().ok()?;
        Some(bytes.starts_with(b"\x93NUMPY") && bytes.len() == 10 + header.len() + 1 + 4 * values)
    };
    Plan::from_json(text).is_ok()
        || text.trim_end().ends_with("</svg>")
        || (bytes.starts_with(b"\x89PNG") && bytes.ends_with(b"IEND\xaeB`\x82"))
        || array() == Some(true)
}
