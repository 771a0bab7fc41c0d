//! The transcript in README is what the program prints: its two commands are run, and every line of the transcript must be a line of
//! their output, in that order. Lines of `...` stand for what was left out; times differ from run to run and are not compared.

use std::path::Path;

/// A line without the times in it, and without the width that they take.
fn comparable(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let is_unit = |word: Option<&&str>| word.is_some_and(|word| ["µs", "ms", "s"].contains(word));
    let is_time = |i: usize| words[i].parse::<f64>().is_ok() && is_unit(words.get(i + 1));
    let is_of_time = |i: usize| is_time(i) || i.checked_sub(1).is_some_and(is_time);
    let kept = (0..words.len()).filter(|i| !is_of_time(*i));
    kept.map(|i| words[i]).collect::<Vec<_>>().join(" ")
}

/// The first text block and the first shell block of README: what is printed, and by which commands.
fn blocks(readme: &str) -> (Vec<String>, String) {
    let block = |language: &str| {
        let start = readme.split(&format!("```{language}\n")).nth(1).expect("a block of this language");
        start.split("\n```").next().unwrap_or_default().to_owned()
    };
    (block("text").lines().map(str::to_owned).collect(), block("sh"))
}

#[test]
fn the_transcript_is_what_the_program_prints() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let (transcript, commands) = blocks(&std::fs::read_to_string(readme).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let mut printed = Vec::new();
    for command in commands.lines().filter_map(|line| line.split("cargo run --release -- ").nth(1)) {
        let words = command.split(" #").next().unwrap_or_default().trim_end_matches("&&").split_whitespace();
        let words: Vec<&str> = words.collect();
        let run = std::process::Command::new(env!("CARGO_BIN_EXE_corrnoise"))
            .args(&words)
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(run.status.success(), "{words:?}: {}", String::from_utf8_lossy(&run.stderr));
        printed.extend(String::from_utf8(run.stdout).unwrap().lines().map(comparable));
    }
    assert!(printed.len() > 20, "README names no commands: {commands}");
    let mut rest = printed.iter();
    for line in transcript.iter().filter(|line| !line.is_empty() && !line.trim_start().starts_with("...")) {
        let expected = comparable(line);
        assert!(
            rest.any(|found| *found == expected),
            "README's transcript has a line that the program does not print there: {line:?}\n{}",
            printed.join("\n")
        );
    }
}
