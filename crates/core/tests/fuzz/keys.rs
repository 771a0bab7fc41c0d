//! Key files: a file is a key if it holds 32 raw bytes, or 64 hexadecimal digits with nothing but blanks after them, and then it
//! is that key. What is refused is described by its length alone, so that no error shows a part of a key.
//!
//! A pipe without a writer is no case: opening it waits for one, as `--key-file <(…)` needs.

use crate::{Random, cases, timed};
use corrnoise_core::{Form, Key, Plan, Result};
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(1);
/// The most bytes of a key file: a longer file is never a key.
const MAX_FILE: usize = 4096;

/// A random content of a key file: nearly a key more often than not.
fn content(random: &mut Random) -> Vec<u8> {
    let bytes = |random: &mut Random, len: usize| (0..len).map(|_| random.word() as u8).collect::<Vec<_>>();
    if random.below(4) == 0 {
        let len = *random.pick(&[0, 1, 31, 32, 32, 33, 63, 64, 65, 4095, 4096, 4097, 5000]);
        let len = if random.below(3) == 0 { random.below(5001) } else { len };
        return bytes(random, len);
    }
    let digits = *random.pick(&[64, 64, 64, 64, 32, 63, 65, 128]);
    let alphabet: &[u8] = random.pick::<&[u8]>(&[b"0123456789abcdef", b"0123456789ABCDEF", b"09afAF"]);
    let mut text: Vec<u8> = (0..digits).map(|_| *random.pick(alphabet)).collect();
    if random.below(2) == 0 {
        let blanks = *random.pick(&[1, 1, 2, 10, MAX_FILE - 65, MAX_FILE - 64, MAX_FILE - 63, 4900]);
        let kind = *random.pick(&[b"\n\n", b"\r\n", b"  ", b" \t", b"\x0c\n"]);
        text.extend(kind.iter().cycle().take(blanks));
    }
    let odd: [&[u8]; 12] = [
        b" ",
        b"\n",
        b"\r",
        b"\0",
        b"\x0b",
        b"g",
        b"-",
        b"0x",
        b"\xff",
        "é".as_bytes(),
        "\u{feff}".as_bytes(),
        "٣".as_bytes(),
    ];
    for _ in 0..*random.pick(&[0, 0, 1, 1, 2]) {
        let middle = random.below(text.len() + 1);
        let at = *random.pick(&[0, middle, text.len(), 64.min(text.len())]);
        let end = if random.below(2) == 0 { at } else { (at + 1).min(text.len()) };
        text.splice(at..end, random.pick(&odd).iter().copied());
    }
    text
}

/// The key that a file holds, read without the library.
fn parse(content: &[u8]) -> Option<[u8; 32]> {
    if let Ok(raw) = content.try_into() {
        return Some(raw);
    }
    let (digits, rest) = content.split_at_checked(64)?;
    let blank = |byte: &u8| [b' ', b'\t', b'\n', b'\r', 0x0c].contains(byte);
    if content.len() > MAX_FILE || !rest.iter().all(blank) || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let text = std::str::from_utf8(digits).unwrap();
    Some(std::array::from_fn(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap()))
}

/// Asserts that a key is that of the content, and that an error says no more than the content's length.
fn judge(path: &Path, content: &[u8], read: Result<Key>, plan: &Plan) -> bool {
    match (read, parse(content)) {
        (Ok(key), Some(bytes)) => {
            let same = Key::from_bytes(bytes, "run").run_key(plan.fingerprint());
            assert_eq!(key.run_key(plan.fingerprint()).bytes(), same.bytes(), "another key");
            true
        }
        (Err(error), None) => {
            let size =
                if content.len() > MAX_FILE { "more than 4096".into() } else { content.len().to_string() };
            let said = format!(
                "{} has {size} bytes: expected 32 raw bytes or 64 hexadecimal digits",
                path.display()
            );
            assert!(error.to_string().ends_with(&said), "{error}");
            assert!(error.to_string().len() <= said.len() + 20, "{error}");
            false
        }
        (read, parsed) => panic!("accepted: {}, a key: {}", read.is_ok(), parsed.is_some()),
    }
}

/// Writes the content through a pipe, in pieces, and reads a key from it.
#[cfg(target_os = "linux")]
fn through_a_pipe(path: &Path, pieces: usize, content: &[u8]) -> Result<Key> {
    use std::io::Write;
    let _ = std::fs::remove_file(path);
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut pipe = std::fs::OpenOptions::new().write(true).open(path).unwrap();
            for piece in content.chunks(content.len().div_ceil(pieces).max(1)) {
                // The reader closes the pipe when it has read enough.
                let _ = pipe.write_all(piece);
            }
        });
        Key::from_file(path, "run")
    })
}

fn write(path: &Path, content: &[u8]) {
    std::fs::write(path, content).unwrap();
    #[cfg(unix)]
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
}

#[test]
fn key_files_are_a_key_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let plan = Plan::new(3, Form::independent(), 1.0).unwrap();
    let path = folder.path().join("key");
    let (cases, mut accepted, mut slowest) = (cases(4_000), 0, Duration::ZERO);
    for case in cases.clone() {
        let (good, time) = timed(case, LIMIT, || {
            let mut random = Random::new(case);
            let content = content(&mut random);
            #[cfg(target_os = "linux")]
            if random.below(32) == 0 {
                let path = folder.path().join("pipe");
                let read = through_a_pipe(&path, 1 + random.below(5), &content);
                return judge(&path, &content, read, &plan);
            }
            write(&path, &content);
            judge(&path, &content, Key::from_file(&path, "run"), &plan)
        });
        accepted += u64::from(good);
        slowest = slowest.max(time);
    }
    println!("{cases:?}: {accepted} accepted, the slowest took {slowest:?}");
}

/// Things that are not files are refused, and without waiting.
#[cfg(unix)]
#[test]
fn what_is_no_key_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&link, &link).unwrap();
    let missing = folder.path().join("missing");
    for path in [folder.path(), &missing, &missing.join("key"), &link, Path::new(""), Path::new("/dev/null")]
    {
        let (error, _) = timed(0, LIMIT, || Key::from_file(path, "run").unwrap_err().to_string());
        assert!(error.contains(&path.display().to_string()), "{error}");
    }
    let endless = Key::from_file("/dev/zero", "run").unwrap_err().to_string();
    assert!(endless.contains("more than 4096 bytes"), "{endless}");
}
