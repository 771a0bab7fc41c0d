//! Pictures are whole files of their kind, and hold what they should.

mod common;

use common::{files, run};

#[test]
fn every_kind_of_strategy_can_be_drawn() {
    let folder = tempfile::tempdir().unwrap();
    for (i, strategy) in
        ["identity", "toeplitz", "tree", "tree-full", "banded:3", "banded-full:3", "dense", "blt:2"]
            .iter()
            .enumerate()
    {
        let path = folder.path().join(format!("{i}.svg"));
        let (code, _, stderr) =
            run(&["inspect", "-s", strategy, "-n", "24", "--plot", path.to_str().unwrap()]);
        assert_eq!((code, stderr.as_str()), (0, ""), "{strategy}");
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"), "{strategy}");
        for word in ["Strategy C", "independent noise", "24 steps"] {
            assert!(text.contains(word), "{strategy}: {word}");
        }
    }
    assert_eq!(files(folder.path()).len(), 8, "nothing else is left behind");
}

#[test]
fn large_normalised_and_single_step_problems_can_be_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("picture.png");
    for line in [
        &["-s", "blt:2", "-n", "5000"][..],
        &["-s", "banded:3", "-n", "40", "--column-normalize"],
        &["-s", "toeplitz", "-n", "1"],
    ] {
        let line = [&["inspect"], line, &["--plot", path.to_str().unwrap()]].concat();
        let (code, _, stderr) = run(&line);
        assert_eq!((code, stderr.as_str()), (0, ""), "{line:?}");
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(&bytes[..8], b"\x89PNG\r\n\x1a\n");
        assert_eq!(&bytes[bytes.len() - 8..bytes.len() - 4], b"IEND");
    }
}

#[test]
fn overheads_can_be_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("overhead.svg");
    let (code, stdout, _) = run(&["bench", "--quick", "--steps", "1", "--plot", path.to_str().unwrap()]);
    assert_eq!(code, 0);
    for word in ["gpt2", "A100", "0.0017 %", "1.7 %"] {
        assert!(stdout.contains(word), "{word}: {stdout}");
    }
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("H100 SXM") && text.contains("regenerate 64"));
}
