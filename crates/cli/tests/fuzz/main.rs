//! Random command lines from a seed: every subcommand and flag that the parser knows, with values that are likely to cause failures.
//!
//! A line ends in time, without a panic, with status 0, 1 or 2. Status 2 comes with one line on stderr and nothing on stdout; a
//! file that was asked for is whole or absent, and no other file changes.
//!
//! `CORRNOISE_FUZZ_CASES` says how many lines there are, `CORRNOISE_FUZZ_FIRST` the number of the first one; a failure names its
//! number, so that it can be run again alone.

#[path = "../../../core/tests/fuzz/cases.rs"]
mod cases;
#[path = "../common/mod.rs"]
mod common;
mod files;
mod lines;

use cases::{Random, cases, timed};
use files::Folder;
use lines::{Line, Lines};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);

/// Runs a line in this process; returns exit code, stdout and stderr.
fn run(line: &Line) -> (u8, String, String) {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let arguments = std::iter::once("corrnoise".into()).chain(line.words.iter().cloned());
    let code = corrnoise_cli::run(arguments, &mut stdout, &mut stderr, corrnoise_cli::Screen::PLAIN);
    (code, String::from_utf8(stdout).expect("text"), String::from_utf8(stderr).expect("text"))
}

/// Runs a line and fails unless it ended as it should; returns its exit code.
fn check(line: &Line, folder: &Folder) -> u8 {
    let (code, stdout, stderr) = run(line);
    let said = || format!("{:?}: {code}: {stderr}", line.words);
    assert!(code <= 2 && (!line.spoilt || code == 2), "{}", said());
    assert!(stderr.is_empty() || stderr.ends_with('\n'), "{}", said());
    assert!(
        stderr.lines().all(|line| line.len() > "corrnoise: ".len() && line.starts_with("corrnoise: ")),
        "{}",
        said()
    );
    assert!(!stderr.contains(&common::KEY[..16]), "{}", said());
    assert!(!stderr.contains(&files::FILE_KEY[..16]), "{}", said());
    if code == 2 {
        assert!(stderr.lines().count() == 1 && stdout.is_empty(), "{}\n{stdout}", said());
    } else {
        assert!(!stdout.is_empty(), "{}", said());
    }
    let asks_for_json = line.words.iter().any(|word| word == "--json");
    if code < 2 && asks_for_json && stdout.starts_with('{') {
        serde_json::from_str::<serde_json::Value>(&stdout)
            .unwrap_or_else(|error| panic!("{}: {error}", said()));
    }
    folder.check_and_restore(code, &said());
    code
}

#[test]
fn no_command_line_panics_or_hangs() {
    let folder = Folder::new();
    // Words that are relative paths name files of this folder.
    std::env::set_current_dir(folder.path()).unwrap();
    let lines = Lines::new(&folder);
    let (cases, mut codes, mut slowest) = (cases(600), [0; 3], (Duration::ZERO, 0));
    for case in cases.clone() {
        if cases.end - cases.start == 1 {
            println!("{:?}", lines.line(&mut Random::new(case)).words);
        }
        let (code, time) = timed(case, LIMIT, || check(&lines.line(&mut Random::new(case)), &folder));
        codes[usize::from(code)] += 1;
        slowest = slowest.max((time, case));
    }
    println!("{cases:?}: ended with 0, 1, 2: {codes:?}; the slowest (time, number): {slowest:?}");
}
