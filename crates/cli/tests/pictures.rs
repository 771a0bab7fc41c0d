//! Pictures are valid files of their kind, and show the numbers that they should.

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
    assert!(text.contains("regenerate 64"));
    for device in ["this CPU", "A100 40GB (predicted)", "H100 SXM (predicted)", "(measured)"] {
        assert!(text.contains(device), "{device}");
    }
}

/// Writes a plan, draws it with more options and gives the text of the picture.
fn drawn(plan: &str, options: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let [plan_path, picture] = ["plan.json", "plan.svg"].map(|name| folder.path().join(name));
    let [plan_path, picture] = [&plan_path, &picture].map(|path| path.to_str().unwrap());
    let line: Vec<&str> = plan.split(' ').chain(["--out", plan_path]).collect();
    let (code, _, stderr) = run(&line);
    assert_eq!((code, stderr.as_str()), (0, ""), "{plan}");
    let (code, _, stderr) = run(&[&["inspect", plan_path, "--plot", picture], options].concat());
    assert_eq!((code, stderr.as_str()), (0, ""), "{plan}");
    std::fs::read_to_string(picture).unwrap()
}

/// The rival of a plan is independent noise as the table of `plan` has it, amplified where a dataset can be sampled; a plan under other
/// terms than its own has none.
#[test]
fn a_plan_is_compared_with_its_own_rival_or_with_none() {
    let dataset = "plan --dataset-size 400 --batch-size 20 --steps 40 --epsilon 2 --delta 1e-6";
    let amplified = "independent noise for the same ε and δ, Poisson, p = 0.05";
    for plan in
        ["-s banded-opt:4 --sampling block-poisson:4", "-s banded-opt:4", "-s blt:2 --sampling balls-in-bins"]
    {
        let text = drawn(&format!("{dataset} {plan}"), &[]);
        assert!(text.contains(amplified) && text.contains("this plan"), "{plan}");
    }
    let text = drawn("plan --steps 40 --epsilon 2 --delta 1e-6 -s blt:2", &[]);
    assert!(text.contains("independent noise for the same ε and δ, same schedule"));
    assert!(text.contains("under this participation, every strategy"));
    for options in [["-p", "single"], ["--adjacency", "replace-one"]] {
        let text = drawn(&format!("{dataset} -s banded-opt:4 --sampling block-poisson:4"), &options);
        assert!(text.contains("Loss of every released value") && !text.contains("independent noise"));
    }
}

/// The picture of a banded strategy's inverse colours entries of both signs, and only those above the noise level.
#[test]
fn heat_maps_diverge_and_end_at_noise_level() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("picture.svg");
    let (code, _, _) = run(&["inspect", "-s", "banded:4", "-n", "96", "--plot", path.to_str().unwrap()]);
    assert_eq!(code, 0);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("white: zero, or below 2⁻²⁴ of the largest entry"));
    let rectangles: Vec<(f64, f64, [i32; 2])> = text
        .split("<rect ")
        .skip(1)
        .map(|rectangle| {
            let value = |name: &str| {
                let (_, rest) = rectangle.split_once(&format!(" {name}=\"")).unwrap();
                rest.split('"').next().unwrap()
            };
            let fill = value("fill");
            let red_and_blue = [1, 5].map(|at| i32::from_str_radix(&fill[at..at + 2], 16).unwrap());
            let x = rectangle.strip_prefix("x=\"").and_then(|rest| rest.split('"').next()).unwrap();
            (x.parse().unwrap(), value("y").parse().unwrap(), red_and_blue)
        })
        .collect();
    let blue = rectangles.iter().filter(|(_, _, [red, blue])| *blue > red + 20).count();
    let orange = rectangles.iter().filter(|(_, _, [red, blue])| *red > blue + 20).count();
    assert!(blue > 96 && orange > 2 * 96, "{blue} {orange}");
    // C⁻¹ is the upper right panel, 4 units a cell. Its entries fall by 10⁻¹³ within 76 steps: nothing is drawn at the lower left.
    let within = |x: std::ops::Range<f64>, y: std::ops::Range<f64>| {
        rectangles.iter().filter(|(left, top, _)| x.contains(left) && y.contains(top)).count()
    };
    assert_eq!(within(634.0..674.0, 480.0..520.0), 0);
    assert!(within(634.0..674.0, 136.0..176.0) > 10, "the upper left is drawn");
}
