//! The names of temporary files: `.{target}.{16 random digits}.corrnoise-tmp`, next to their target.

use std::ffi::{OsStr, OsString};
use std::io;

const SUFFIX: &str = ".corrnoise-tmp";
/// The number of random hexadecimal digits: 64 bits, so that no two temporary files ever share a name.
const DIGITS: usize = 16;
/// The longest target that is named in full; a longer one is named by its hash. A name has at most 255 bytes, on some file
/// systems 143, and 32 of them are ours.
const LONGEST: usize = 100;

/// The prefix of the names of this target's temporary files.
fn prefix(target: &OsStr) -> OsString {
    let mut prefix = OsString::from(".");
    if target.len() <= LONGEST {
        prefix.push(target);
    } else {
        prefix.push(blake3::hash(target.as_encoded_bytes()).to_hex().as_str());
    }
    prefix.push(".");
    prefix
}

/// A new name for a temporary file of this target.
pub(super) fn fresh(target: &OsStr) -> io::Result<OsString> {
    let mut bytes = [0; DIGITS / 2];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    let mut name = prefix(target);
    name.push(format!("{:0width$x}", u64::from_le_bytes(bytes), width = DIGITS));
    name.push(SUFFIX);
    Ok(name)
}

/// Recognises the names that [`fresh`] makes for one target.
pub(super) struct Pattern(OsString);

impl Pattern {
    pub(super) fn new(target: &OsStr) -> Pattern {
        Pattern(prefix(target))
    }

    pub(super) fn matches(&self, name: &OsStr) -> bool {
        let middle = name.as_encoded_bytes().strip_prefix(self.0.as_encoded_bytes());
        let digits = middle.and_then(|rest| rest.strip_suffix(SUFFIX.as_bytes()));
        let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        digits.is_some_and(|digits| digits.len() == DIGITS && digits.iter().all(is_digit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_and_belong_to_one_target() {
        let long = "x".repeat(255);
        let targets =
            ["a", "a.b", "a.0123456789abcdef", ".a", "ä b", &long[..254], &long, &long[..100], &long[..101]];
        for target in targets {
            let name = fresh(target.as_ref()).unwrap();
            assert!(name.len() <= 143, "{name:?}");
            assert_ne!(name, fresh(target.as_ref()).unwrap());
            for other in targets {
                assert_eq!(Pattern::new(other.as_ref()).matches(&name), other == target, "{other} {name:?}");
            }
        }
        let pattern = Pattern::new("a".as_ref());
        assert!(pattern.matches(".a.0123456789abcdef.corrnoise-tmp".as_ref()));
        for other in [
            "a",
            ".a.corrnoise-tmp",
            ".a.0123456789abcde.corrnoise-tmp",
            ".a.0123456789abcdeF.corrnoise-tmp",
            ".a.0123456789abcdef.corrnoise-tmp~",
            "a.0123456789abcdef.corrnoise-tmp",
        ] {
            assert!(!pattern.matches(other.as_ref()), "{other}");
        }
    }
}
