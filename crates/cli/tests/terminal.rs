//! The output at a terminal has lines within its width, words that fit their numbers, and sensible units.

mod common;

use common::{Plans, run};
use corrnoise_cli::Screen;

/// The text that a command line prints on a screen.
fn on(screen: Screen, line: &[&str]) -> String {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let arguments = std::iter::once("corrnoise").chain(line.iter().copied()).map(Into::into);
    let code = corrnoise_cli::run(arguments, &mut stdout, &mut stderr, screen);
    assert_eq!(code, 0, "{line:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

fn words(text: &str) -> Vec<&str> {
    let mut words: Vec<&str> = text.split_whitespace().collect();
    words.sort_unstable();
    words
}

/// The number of columns of a line as a terminal shows it.
fn columns(line: &str) -> usize {
    console::measure_text_width(line)
}

const PLAN: &str = "plan --dataset-size 330 --batch-size 20 --epochs 2 --epsilon 2 --delta 1e-6";

#[test]
fn lines_of_plan_end_within_the_terminal() {
    let line: Vec<&str> = PLAN.split(' ').collect();
    let wide = on(Screen { colour: false, width: 1000 }, &line);
    assert!(wide.lines().any(|line| columns(line) > 150), "nothing to wrap: {wide}");
    for (width, colour) in [(60, false), (80, true), (80, false), (100, false), (120, true)] {
        let text = on(Screen { colour, width }, &line);
        for line in text.lines() {
            assert!(columns(line) <= width, "{width}: {line}");
        }
        assert_eq!(text.contains("\x1b[1m"), colour);
        // Nothing is lost: blocks of a table that is too wide only repeat the names of its rows.
        let narrow = words(&text);
        assert!(
            colour || words(&wide).iter().all(|word| narrow.binary_search(word).is_ok()),
            "{width}: {text}"
        );
    }
}

#[test]
fn a_pipe_gets_the_same_lines_always() {
    let line: Vec<&str> = PLAN.split(' ').collect();
    let (_, text, _) = run(&line);
    assert_eq!(text, on(Screen::PLAIN, &line));
    assert!(text.lines().all(|line| columns(line) <= 120), "{text}");
    // A file's name is not broken, however long it is.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("n".repeat(150));
    let path = path.to_str().unwrap();
    let text = on(Screen::PLAIN, &["plan", "--steps", "8", "--mu", "1", "--out", path]);
    assert!(text.contains(path), "{text}");
}

#[test]
fn bench_fits_and_has_sensible_units() {
    let line = ["bench", "--quick", "--steps", "1", "--preset", "llama-7b", "--batch", "1000"];
    let text = on(Screen { colour: false, width: 80 }, &line);
    for line in text.lines() {
        assert!(columns(line) <= 80, "{line}");
    }
    // A step of llama-7b takes a CPU weeks: in no unit are there thousands.
    let tokens: Vec<&str> = text.split_whitespace().map(|word| word.trim_matches(['(', ')'])).collect();
    for pair in tokens.windows(2).filter(|pair| pair[1] == "s") {
        assert!(pair[0].parse::<f64>().unwrap() < 120.0, "{pair:?}: {text}");
    }
    // Rings make several rows in one pass over their history: bytes are those of the engine, not of row by row.
    for bytes in ["23.5 B", "47.5 B", "65.5 B"] {
        assert!(text.contains(bytes), "{bytes}: {text}");
    }
    let (measured, predicted) = text.split_once("On a GPU (predicted").unwrap();
    assert!(!measured.contains("264 B") && predicted.contains("264 B"), "{text}");
    // Where a table is broken, each part still says which way to run a form a row is about.
    assert_eq!(text.lines().filter(|line| line.starts_with("ring 64, prepared")).count(), 3, "{text}");
    // Every count is one here, so that words must be singular.
    let line = ["bench", "--quick", "--steps", "1", "--params", "1", "--batch", "1", "--seq", "1"];
    let text = on(Screen::PLAIN, &line);
    assert!(text.contains("model: 1 parameter, 1 example of 1 token, "), "{text}");
}

#[test]
fn inspect_says_how_many_normals_and_what_runs() {
    for (strategy, expected) in [
        ("identity", "normals           1  per parameter and step; runs as independent noise"),
        ("blt:2", "normals           1  per parameter and step; runs as a BLT"),
        ("banded:3", "normals           1  per parameter and step; runs as a ring"),
        (
            "bisr:3",
            "normals           3  per parameter and step, at most; runs as a sum of rows that are made again",
        ),
    ] {
        let text = on(Screen::PLAIN, &["inspect", "-s", strategy, "-n", "20"]);
        let squeeze = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(squeeze(&text).contains(&squeeze(expected)), "{strategy}: {text}");
        assert!(!text.contains("runs as  ") && !text.contains("1 normals"), "{strategy}: {text}");
    }
    let text = on(Screen { colour: false, width: 80 }, &["inspect", "-s", "blt:2", "-n", "64"]);
    assert!(text.lines().all(|line| columns(line) <= 80), "{text}");
    assert!(on(Screen::PLAIN, &["inspect", "-s", "toeplitz", "-n", "1"]).contains("toeplitz; 1 step, "));
}

#[test]
fn lines_of_verify_end_within_the_terminal() {
    for width in [80, 200] {
        let text = on(Screen { colour: false, width }, &["verify", "--quick"]);
        let longest = text.lines().map(columns).max().unwrap();
        assert!(longest <= width, "{width}: {text}");
        assert_eq!(text.lines().filter(|line| line.starts_with("ok ")).count(), 11, "{text}");
        // Continuation lines are indented, so that every check is found at the left edge.
        let continued = text.lines().filter(|line| line.starts_with(' ')).count();
        assert_eq!(continued == 0, width == 200, "{width}: {text}");
    }
}

/// A file is written through another one whose name nobody asked for: no message shows it.
#[test]
fn a_temporary_file_s_name_never_shows() {
    let plans = Plans::new();
    let (plan, long) = (plans.text("blt.json"), plans.text(&"x".repeat(300)));
    let (missing, below) = (plans.text("missing/o.svg"), plans.text("blt.json/o.svg"));
    let folder = plans.folder.path().to_str().unwrap().to_owned();
    let svg = format!("{long}.svg");
    let mut lines: Vec<Vec<&str>> = Vec::new();
    for out in [&long, &missing, &below, &folder] {
        lines.push(vec!["plan", "--steps", "8", "--mu", "1", "--out", out]);
        let generate = ["generate", "--plan", &plan, "--steps", "0..1", "--coords", "0..9", "--out", out];
        lines.push(generate.to_vec());
    }
    for picture in [&svg, &missing, &below] {
        lines.push(vec!["inspect", &plan, "--plot", picture]);
    }
    for line in lines {
        let (code, _, stderr) = run(&line);
        assert_eq!((code, stderr.lines().count()), (2, 1), "{line:?}: {stderr}");
        let asked = line[line.len() - 1];
        assert!(stderr.contains(&format!("cannot write {asked}:")), "{stderr}");
        assert!(!stderr.contains("corrnoise-tmp") && !stderr.contains("/proc/"), "{stderr}");
    }
}
