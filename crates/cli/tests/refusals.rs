//! Bad command lines end with one line on stderr that names the value, with exit code 2, without a panic, and leave nothing behind.

mod common;

use common::{KEY, Plans, binary};

/// Command lines, in which `{x}` is a file of the test's folder, and the words that the message must contain.
const CASES: [(&str, &[&str]); 73] = [
    // The command line itself.
    ("", &["subcommand"]),
    ("bogus", &["bogus"]),
    ("inspect --nonsense", &["--nonsense"]),
    ("inspect", &["--strategy", "--steps"]),
    ("inspect -s toeplitz", &["--steps"]),
    ("completions tcsh", &["tcsh", "bash"]),
    // Strategies.
    ("inspect -s quadtree -n 8", &["quadtree", "toeplitz-opt"]),
    ("inspect -s banded -n 8", &["banded", "banded:16"]),
    ("inspect -s banded:0 -n 8", &["\"0\"", "whole number"]),
    ("inspect -s banded:x -n 8", &["\"x\"", "whole number"]),
    ("inspect -s banded:-3 -n 8", &["\"-3\""]),
    ("inspect -s banded:9 -n 8", &["9", "1 to 8"]),
    ("inspect -s bisr:9 -n 8", &["9", "1 to 8"]),
    ("inspect -s banded-opt:9 -n 8", &["9", "1 to 8"]),
    ("inspect -s bandinv-opt:9 -n 8", &["9", "1 to 8"]),
    ("inspect -s blt:9 -n 8", &["9", "between 1 and 8"]),
    ("inspect -s blt:0 -n 8", &["\"0\""]),
    ("inspect -s toeplitz:3 -n 8", &["toeplitz", "\"3\"", "no argument"]),
    ("inspect -s toeplitz-damped:1 -n 8", &["1", "[0, 1)"]),
    ("inspect -s toeplitz-damped -n 8", &["toeplitz-damped:0.01"]),
    ("inspect -s dense -n 5000", &["5000", "2048"]),
    ("inspect -s dense -n 16 --objective mean", &["mean", "max or rms"]),
    // Steps.
    ("inspect -s toeplitz -n 0", &["\"0\"", "from 1 on"]),
    ("inspect -s toeplitz -n -5", &["\"-5\"", "from 1 on"]),
    ("inspect -s toeplitz -n 2.5", &["2.5"]),
    ("inspect -s toeplitz -n 1e30", &["1e30"]),
    ("inspect -s toeplitz -n 1e12", &["1000000000000", "at most"]),
    // Participation, workload, adjacency.
    ("inspect -s toeplitz -n 8 -p twice", &["twice", "minsep:B,K"]),
    ("inspect -s toeplitz -n 8 -p minsep:3", &["minsep:400,5"]),
    ("inspect -s toeplitz -n 8 -p minsep:3,4", &["4", "1 to 3"]),
    ("inspect -s toeplitz -n 8 -p cyclic:4,3", &["3", "1 to 2"]),
    ("inspect -s toeplitz -n 8 -p cyclic:0,3", &["\"0\""]),
    ("inspect -s toeplitz -n 8 -w suffix", &["suffix", "nesterov:BETA"]),
    ("inspect -s toeplitz -n 8 -w momentum:1.5", &["1.5"]),
    ("inspect -s toeplitz -n 8 -w momentum:nan", &["nan"]),
    ("inspect -s toeplitz -n 8 --adjacency add-remove", &["add-remove", "zero-out"]),
    // Pictures.
    ("inspect -s toeplitz -n 8 --plot {picture.gif}", &["picture.gif", ".svg or .png"]),
    ("inspect -s toeplitz -n 8 --plot {missing/p.svg}", &["missing/p.svg", "No such file"]),
    ("inspect -s toeplitz -n 8 --plot {blt.json/p.svg}", &["blt.json/p.svg", "Not a directory"]),
    // Accounting.
    ("account", &["--mu", "--epsilon"]),
    ("account --epsilon 1", &["--delta"]),
    ("account --epsilon 0 --delta 1e-6", &["epsilon is 0", "positive"]),
    ("account --epsilon -1 --delta 1e-6", &["epsilon is -1"]),
    ("account --epsilon 1 --delta 1", &["delta is 1", "(0, 1)"]),
    ("account --epsilon 1 --delta 0", &["delta is 0"]),
    ("account --epsilon inf --delta 1e-6", &["inf"]),
    ("account --mu 0", &["mu is 0"]),
    ("account --noise-multiplier -2 --delta 1e-6", &["noise multiplier is -2"]),
    ("account --mu 1 --rho 1", &["--mu", "--rho"]),
    ("account --mu 1 --epsilon 1 --delta 1e-6", &["too much"]),
    ("account --sampling-prob 0.1 --noise-multiplier 1 --delta 1e-6", &["--steps"]),
    ("account --sampling-prob 1.5 --steps 10 --noise-multiplier 1 --delta 1e-6", &["1.5", "(0, 1]"]),
    ("account --sampling-prob 0.1 --steps 10 --mu 1 --delta 1e-6", &["--mu 1", "--noise-multiplier"]),
    ("account --sampling-prob 0.1 --steps 10 --noise-multiplier 1 --delta 1e-310", &["e-310", "1e-300"]),
    ("account --sampling-prob 0.1 --steps 10 --epsilon 1 --delta 1e-310", &["e-310", "1e-300"]),
    // The engine's normals are bounded, so a claim that needs larger ones is refused.
    (
        "plan --steps 9 -p single -s identity --mu 7 --delta 1e-6",
        &["delta is 1e-6", "above 4", "11.5 standard"],
    ),
    ("plan --steps 9 -p single -s identity --mu 0.5 --delta 1e-28", &["delta is 1e-28", "11.5 standard"]),
    (
        "plan --steps 9 -s identity --noise-multiplier 5e-4",
        &["gdp_mu is 1999.9", "more noise", "11.5 standard"],
    ),
    // Noise.
    (
        "generate --plan {missing.json} KEY --steps 0..1 --coords 0..9 --out {o.npy}",
        &["missing.json", "No such file"],
    ),
    ("generate --plan {cut.json} KEY --steps 0..1 --coords 0..9 --out {o.npy}", &["cut.json", "refused"]),
    (
        "generate --plan {edited.json} KEY --steps 0..1 --coords 0..9 --out {o.npy}",
        &["edited.json", "edited or damaged"],
    ),
    ("generate --plan {blt.json} KEY --steps 0..31 --coords 0..9 --out {o.npy}", &["0..31", "0..30"]),
    ("generate --plan {blt.json} KEY --steps 5..5 --coords 0..9 --out {o.npy}", &["5..5", "empty"]),
    (
        "generate --plan {blt.json} KEY --steps 0..1 --coords 0..11 --dim 10 --out {o.npy}",
        &["0..11", "0..10"],
    ),
    (
        "generate --plan {blt.json} KEY --steps 0..1 --coords 9..3 --out {o.npy}",
        &["9..3", "larger than the start"],
    ),
    ("generate --plan {blt.json} KEY --steps 0..1 --coords 9 --out {o.npy}", &["'9'", "0..100"]),
    ("generate --plan {blt.json} KEY --steps 0..1 --coords 0..1e15 --out {o.npy}", &["2^48"]),
    ("generate --plan {tree.json} KEY --iid --steps 0..1 --coords 0..9 --out {o.npy}", &["--iid", "tree"]),
    (
        "generate --plan {blt.json} --key-hex 0123 --steps 0..1 --coords 0..9 --out {o.npy}",
        &["4 characters", "64"],
    ),
    (
        "generate --plan {blt.json} --key-file {short.key} --steps 0..1 --coords 0..9 --out {o.npy}",
        &["short.key", "7 bytes"],
    ),
    (
        "generate --plan {blt.json} KEY --steps 0..1 --coords 0..9 --out {blt.json/o.npy}",
        &["blt.json/o.npy", "Not a directory"],
    ),
    ("generate --plan {blt.json} KEY --steps 0..1 --coords 0..9 --out {.}", &["folder"]),
    (
        "generate --plan {blt.json} KEY --device tpu --steps 0..1 --coords 0..9 --out {o.npy}",
        &["tpu", "cuda"],
    ),
];

const MORE: [(&str, &[&str]); 14] = [
    ("bench --mfu 0", &["mfu is 0"]),
    ("bench --machine B200:gbps=1,sms=1,ghz=1", &["new one", "NAME:gbps=864"]),
    ("bench --machine x:gbps=1,sms=1", &["gbps, sms and ghz"]),
    ("verify --report r.json", &["--device"]),
    ("verify --values 7", &["--device"]),
    ("verify {blt.json} --device cuda", &["--device"]),
    ("verify --device cpu --report {r.json}", &["device is cpu", "cuda:0"]),
    ("verify --device cuda --values 1e10", &["values is 10000000000"]),
    ("verify --device cuda --report {missing/r.json}", &["cannot write"]),
    ("bench --mfu 1.5", &["mfu is 1.5"]),
    ("bench --preset gpt9", &["gpt9", "llama-7b"]),
    ("bench --params 0", &["\"0\""]),
    ("bench --preset dlrm --seq 7", &["seq is 7", "dlrm"]),
    ("bench --clipping-factor 0.5", &["0.5", "at least 1"]),
];

/// Command lines about plans, in which `BASE` stands for a line that has an answer.
const PLANS: [(&str, &[&str]); 61] = [
    // How long, how much.
    ("plan", &["--steps", "--epochs", "--epsilon"]),
    ("plan --mu 1", &["--steps", "--epochs"]),
    ("plan --steps 8", &["--epsilon", "--mu", "--noise-multiplier"]),
    ("plan --steps 8 --epochs 2 --dataset-size 80 --batch-size 10 --mu 1", &["--steps", "--epochs"]),
    ("plan --steps 8 --mu 1 --noise-multiplier 1", &["--mu", "--noise-multiplier"]),
    ("plan --steps 8 --mu 1 --epsilon 1 --delta 1e-6", &["--mu", "--epsilon"]),
    ("plan --steps 0 --mu 1", &["\"0\"", "from 1 on"]),
    ("plan --steps 1e12 --mu 1", &["1000000000000", "1 to"]),
    ("plan --epochs 2 --mu 1", &["--dataset-size", "--batch-size"]),
    ("plan --epochs 0 --dataset-size 80 --batch-size 10 --mu 1", &["epochs is 0"]),
    ("plan --epochs -2 --dataset-size 80 --batch-size 10 --mu 1", &["epochs is -2"]),
    ("plan --steps 8 --epsilon 1", &["--delta"]),
    ("plan --steps 8 --epsilon 0 --delta 1e-6", &["epsilon is 0", "positive"]),
    ("plan --steps 8 --epsilon -1 --delta 1e-6", &["epsilon is -1"]),
    ("plan --steps 8 --epsilon 1 --delta 1", &["delta is 1", "(0, 1)"]),
    ("plan --steps 8 --epsilon 1 --delta 0", &["delta is 0"]),
    ("plan --steps 8 --mu 1 --delta 2", &["delta is 2"]),
    ("plan --steps 8 --mu 0", &["mu is 0"]),
    ("plan --steps 8 --noise-multiplier -1", &["noise multiplier is -1"]),
    ("plan --steps 8 --mu nan", &["nan"]),
    ("plan --steps 8 --mu 1 --clip-norm 0", &["clip norm is 0"]),
    // Who takes part.
    ("plan --steps 8 --mu 1 --participation minsep:3,4", &["4", "1 to 3"]),
    ("plan BASE --participation cyclic:4,3", &["3", "1 to 2"]),
    ("plan BASE --participation twice", &["twice", "minsep:B,K"]),
    ("plan BASE --participation full --setting streaming", &["--participation", "--setting"]),
    ("plan BASE --participation full --sampling cyclic", &["--participation", "--sampling"]),
    ("plan BASE --dataset-size 80", &["--batch-size"]),
    ("plan BASE --batch-size 80", &["--dataset-size"]),
    ("plan BASE --dataset-size 80 --batch-size 81", &["batch size is 81", "1 to 80"]),
    ("plan BASE --dataset-size 80 --batch-size 0", &["\"0\""]),
    ("plan BASE --setting centralized", &["--dataset-size"]),
    ("plan BASE --setting decentralized", &["decentralized", "federated"]),
    ("plan BASE --setting federated", &["--min-sep", "--max-participations"]),
    ("plan BASE --setting federated --min-sep 2", &["--max-participations"]),
    ("plan BASE --setting streaming --min-sep 2 --max-participations 2", &["--min-sep 2", "federated"]),
    ("plan BASE --sampling poisson", &["--sampling", "--dataset-size"]),
    ("plan BASE DATA --sampling shuffle", &["shuffle", "balls-in-bins"]),
    ("plan BASE DATA --sampling block-poisson:9", &["9", "1 to 8"]),
    ("plan BASE DATA --sampling spaced-poisson:9", &["9", "1 to 8"]),
    ("plan BASE DATA --sampling spaced-poisson", &["spaced-poisson needs a number"]),
    ("plan BASE DATA --sampling truncated-poisson:20,9", &["9", "1 to 8"]),
    ("plan BASE DATA --sampling truncated-poisson:20 --adjacency replace-one", &["replace-one", "zero-out"]),
    ("plan --steps 8 --mu 1 -s blt:2 DATA --sampling truncated-poisson:20", &["a BLT is not banded"]),
    ("plan BASE DATA --sampling poisson --adjacency replace-one", &["replace-one", "zero-out"]),
    ("plan --steps 8 --mu 1 DATA --sampling poisson", &["--sampling", "--strategy"]),
    ("plan --steps 8 --mu 1 -s banded:3 DATA --sampling block-poisson:2", &["bands is 3", "at most 2"]),
    ("plan --steps 8 --mu 1 -s blt:2 DATA --sampling poisson", &["a BLT is not banded", "at most 1"]),
    (
        "plan --steps 8 --mu 1 -s bisr:2 DATA --sampling poisson",
        &["inverse of a banded matrix is not banded"],
    ),
    ("plan --steps 8 --mu 1 -s dense DATA --sampling poisson", &["a dense matrix is not banded"]),
    ("plan BASE DATA --min-sep 2 --max-participations 2 --sampling cyclic", &["--min-sep", "--sampling"]),
    ("plan BASE --step 3", &["'--step' found; tip: a similar argument exists: '--steps'; see --help"]),
    // The rest.
    ("plan --steps 8 --mu 1 -s quadtree", &["quadtree", "auto"]),
    ("plan --steps 8 --mu 1 -s blt:2 --max-state-bytes 4", &["8 bytes", "at most 4"]),
    ("plan BASE --max-state-bytes -1", &["-1"]),
    ("plan BASE --rounds 13", &["13", "8, 12 or 20"]),
    ("plan BASE --unit household", &["household", "user"]),
    ("plan BASE --out {missing/p.json}", &["missing/p.json", "No such file"]),
    ("plan BASE --out {blt.json/p.json}", &["blt.json/p.json", "Not a directory"]),
    ("plan BASE --out {.}", &["folder"]),
    ("plan BASE --out /dev/full", &["/dev/full", "No space left"]),
    ("plan BASE --workload momentum:2", &["2"]),
];

/// Commands that read a plan.
const READERS: [(&str, &[&str]); 17] = [
    ("inspect {missing.json}", &["missing.json", "No such file"]),
    ("inspect {cut.json}", &["cut.json", "refused"]),
    ("inspect {edited.json}", &["edited.json", "edited or damaged"]),
    ("inspect {short.key}", &["short.key", "refused"]),
    ("inspect {.}", &["directory"]),
    ("inspect {blt.json} --steps 8", &["--steps"]),
    ("inspect {blt.json} --column-normalize", &["--column-normalize"]),
    ("inspect {blt.json} -p minsep:20,3", &["3", "1 to 2"]),
    ("inspect {blt.json} --plot {missing/p.svg}", &["missing/p.svg", "No such file"]),
    ("account {missing.json}", &["missing.json", "No such file"]),
    ("account {cut.json}", &["cut.json", "refused"]),
    ("account {edited.json}", &["edited.json", "edited or damaged"]),
    ("account {blt.json}", &["blt.json", "no privacy claim"]),
    ("account {blt.json} --mu 1", &["--mu"]),
    ("verify {missing.json}", &["missing.json", "No such file"]),
    ("verify {cut.json}", &["cut.json", "refused"]),
    ("verify {edited.json} --quick", &["edited.json", "edited or damaged"]),
];

fn words(line: &str, plans: &Plans) -> Vec<String> {
    let word = |word: &str| match word.strip_prefix('{').and_then(|word| word.strip_suffix('}')) {
        Some(".") => vec![plans.folder.path().to_str().unwrap().to_owned()],
        Some(name) => vec![plans.text(name)],
        None if word == "BASE" => ["--steps", "8", "--mu", "1", "-s", "identity"].map(str::to_owned).to_vec(),
        None if word == "DATA" => ["--dataset-size", "80", "--batch-size", "10"].map(str::to_owned).to_vec(),
        None if word == "KEY" => vec!["--key-hex".into(), KEY.into()],
        None => vec![word.to_owned()],
    };
    line.split_whitespace().flat_map(word).collect()
}

fn refuse(line: &str, words: &[String], fragments: &[&str]) {
    let output = binary(&words.iter().map(String::as_str).collect::<Vec<_>>());
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{line}: {stderr}");
    assert!(stderr.ends_with('\n') && stderr.lines().count() == 1, "{line}: {stderr}");
    assert!(!stderr.contains("panicked"), "{line}: {stderr}");
    assert_eq!(output.stdout, b"", "{line}");
    for fragment in fragments {
        assert!(stderr.contains(fragment), "{line}: {fragment:?} is not in {stderr}");
    }
    assert!(!stderr.contains(&KEY[..16]), "{line}: {stderr}");
}

#[test]
fn bad_command_lines() {
    let plans = Plans::new();
    let text = std::fs::read_to_string(plans.path("blt.json")).unwrap();
    std::fs::write(plans.path("cut.json"), &text[..text.len() / 2]).unwrap();
    std::fs::write(plans.path("edited.json"), text.replacen("0.5", "0.25", 1)).unwrap();
    std::fs::write(plans.path("short.key"), "c0ffee\n").unwrap();
    let before = plans.files();
    for (line, fragments) in CASES.iter().chain(&MORE).chain(&PLANS).chain(&READERS) {
        refuse(line, &words(line, &plans), fragments);
        assert_eq!(plans.files(), before, "{line} left a file behind");
        assert_eq!(std::fs::read_to_string(plans.path("blt.json")).unwrap(), text, "{line}");
    }
}

#[cfg(not(feature = "cuda"))]
#[test]
fn without_the_cuda_engine_it_says_how_to_build_it() {
    let plans = Plans::new();
    let line = "generate --plan {blt.json} KEY --device cuda:1 --steps 0..1 --coords 0..9 --out {o.npy}";
    refuse(line, &words(line, &plans), &["--device cuda", "--features cuda"]);
    refuse(
        "bench --device cuda",
        &words("bench --device cuda", &plans),
        &["--device cuda", "--features cuda"],
    );
}

/// Without a GPU, or without the engine for one, there is one line and no report.
#[test]
fn without_a_gpu_there_is_one_line_and_no_report() {
    let folder = tempfile::tempdir().unwrap();
    // Cargo's library path may lead to the stand-in for a driver.
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_corrnoise"))
        .args(["verify", "--device", "cuda:0", "--report", "gpu.json"])
        .current_dir(folder.path())
        .env_remove("LD_LIBRARY_PATH")
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    if output.status.code() == Some(0) {
        return println!("WARNING: this machine has a GPU; what is said without one was NOT tested");
    }
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
    assert!(stderr.contains("cuda") && output.stdout.is_empty(), "{stderr}");
    assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none(), "no file is left behind");
}

/// A key where another value belongs, as after a flag whose value was forgotten, is not shown.
#[test]
fn a_misplaced_key_is_not_shown() {
    let plans = Plans::new();
    let file =
        format!("generate --plan {{blt.json}} --key-file {KEY} --steps 0..1 --coords 0..9 --out {{o.npy}}");
    for line in [
        "generate --plan {blt.json} --coords KEY --steps {o.npy} -h",
        "generate --plan {blt.json} --steps=KEY --coords 0..1 --out {o.npy}",
        &format!("inspect {KEY}"),
        &format!("inspect -s {} -n 8", &KEY[..60]),
        &file,
    ] {
        refuse(line, &words(&line.replace("=KEY", &format!("={KEY}")), &plans), &["hexadecimal digits>"]);
    }
}

/// Tests a full disk by the device that is always full. The device must still be there afterwards.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk() {
    use std::os::unix::fs::FileTypeExt;
    let plans = Plans::new();
    let line = "generate --plan {blt.json} KEY --steps 0..30 --coords 0..9999 --out /dev/full";
    refuse(line, &words(line, &plans), &["/dev/full", "No space left"]);
    assert!(std::fs::metadata("/dev/full").unwrap().file_type().is_char_device());
    // Standard output is full here.
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_corrnoise"))
        .args(["account", "--mu", "1", "--json"])
        .stdout(full)
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
}

/// A command whose reader ends early, as in `corrnoise … | head -1`, ends quietly.
#[cfg(unix)]
#[test]
fn a_closed_pipe_is_no_error() {
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_corrnoise"))
        .args(["completions", "bash"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}

/// A file that was there stays as it was when a run fails.
#[test]
fn a_failed_run_keeps_the_old_file() {
    let plans = Plans::new();
    std::fs::write(plans.path("o.npy"), b"old").unwrap();
    let line = "generate --plan {blt.json} KEY --steps 0..31 --coords 0..9 --out {o.npy}";
    refuse(line, &words(line, &plans), &["0..31"]);
    assert_eq!(std::fs::read(plans.path("o.npy")).unwrap(), b"old");
}
