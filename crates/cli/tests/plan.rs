//! The subcommand `plan` and those that read a plan: documented keys, the library's numbers to the last digit, and claims that do not hold.

mod common;

use common::{assert_keys, json, number, run};
use corrnoise::planner::account;
use corrnoise::planner::optimize::{Objective, Problem, blt, unobserved};
use corrnoise::planner::{
    Adjacency, Certificate, Factorization, Goal, Participation, PrivacyUnit, Request, Schedule, Strategy,
    Terms, Workload, calibrate, verify,
};
use corrnoise::{Plan, Sampling};
use serde_json::Value;
use std::path::{Path, PathBuf};

const PLAN_KEYS: [&str; 10] = [
    "plan",
    "steps",
    "recommended",
    "reason",
    "candidates",
    "skipped",
    "claim",
    "loss_change",
    "warnings",
    "out",
];
const CANDIDATE_KEYS: [&str; 17] = [
    "strategy",
    "sampling",
    "recommended",
    "schedule",
    "relative_noise",
    "error",
    "state_bytes_per_param",
    "engine_bytes_per_param",
    "confident_epsilon",
    "rows_per_step",
    "bytes_per_step",
    "epsilon",
    "delta",
    "method",
    "gdp_mu",
    "noise_multiplier",
    "stddev",
];

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// The plan that a command line answers with.
fn plan(line: &str) -> (Value, Plan) {
    let got = json(&words(line));
    assert_keys(&got, &PLAN_KEYS);
    let plan = Plan::from_json(&got["plan"].to_string()).unwrap();
    let claim = verify(&plan).unwrap().claim;
    assert_eq!(got["claim"], serde_json::to_value(&claim).unwrap(), "{line}");
    (got, plan)
}

/// A plan in a folder of its own.
fn written(line: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plan.json");
    let (got, plan) = plan(&format!("{line} --out {}", path.display()));
    assert_eq!(got["out"], path.to_str().unwrap());
    assert_eq!(Plan::load(&path).unwrap(), plan);
    (folder, path)
}

#[test]
fn auto_is_the_library_s_recommendation() {
    let (got, plan) = plan("plan --dataset-size 330 --batch-size 20 --epochs 2 --epsilon 2 --delta 1e-6");
    // 2 epochs of 17 batches: nobody takes part three times.
    let request = Request {
        steps: Some(34),
        dataset_size: Some(330),
        batch_size: Some(20),
        epsilon: Some(2.0),
        delta: Some(1e-6),
        ..Request::default()
    };
    let expected = request.recommend(&mut unobserved()).unwrap();
    let best = expected.recommended();
    assert_eq!((&plan, got["steps"].as_u64()), (&best.plan, Some(34)));
    assert_eq!(got["recommended"], best.to_string());
    assert_eq!(got["reason"], expected.reason);
    assert!(got["out"].is_null());
    let candidates = got["candidates"].as_array().unwrap();
    assert_eq!(candidates.len(), expected.candidates.len());
    for (got, expected) in candidates.iter().zip(&expected.candidates) {
        assert_keys(got, &CANDIDATE_KEYS);
        assert_eq!(got["strategy"], expected.strategy.to_string());
        assert_eq!(got["sampling"].as_str(), expected.sampling().map(|s| s.to_string()).as_deref());
        assert_eq!(got["schedule"], expected.schedule.to_string());
        assert_eq!(number(&got["error"]), expected.error);
        assert_eq!(number(&got["epsilon"]), expected.certificate.claim.epsilon);
        assert_eq!(number(&got["stddev"]), expected.plan.stddev());
        assert_eq!(got["state_bytes_per_param"], expected.state_bytes);
        assert_eq!(got["engine_bytes_per_param"], expected.engine_bytes);
        assert_eq!(number(&got["rows_per_step"]), expected.cost.rows);
        assert_eq!(got["recommended"], expected.to_string() == best.to_string());
        if let Participation::Cyclic { max_participations, .. } = expected.certificate.participation
            && matches!(expected.plan.sampling(), Some(Sampling::Cyclic { .. }))
        {
            assert_eq!(max_participations, 2);
        }
    }
    let skipped = got["skipped"].as_array().unwrap();
    assert_eq!(skipped.len(), expected.skipped.len());
    skipped.iter().for_each(|skipped| assert_keys(skipped, &["strategy", "reason"]));
}

#[test]
fn one_strategy_under_every_schedule() {
    let goal = Goal::GdpMu { gdp_mu: 1.0, delta: 1e-6 };
    let cyclic = Sampling::Cyclic { dataset_size: 80, num_batches: 8 };
    let cases: [(&str, Schedule); 10] = [
        ("", Schedule::Participation(Participation::Single)),
        (
            "-p minsep:7,3",
            Schedule::Participation(Participation::MinSep { min_sep: 7, max_participations: 3 }),
        ),
        ("--dataset-size 80 --batch-size 10", Schedule::Sampling(cyclic)),
        ("--dataset-size 80 --batch-size 10 --sampling cyclic", Schedule::Sampling(cyclic)),
        (
            "--dataset-size 80 --batch-size 10 --sampling balls-in-bins",
            Schedule::Sampling(Sampling::BallsInBins { dataset_size: 80, num_bins: 8 }),
        ),
        (
            "--dataset-size 80 --batch-size 10 --sampling random-allocation",
            Schedule::Sampling(Sampling::RandomAllocation { dataset_size: 80, num_bins: 8 }),
        ),
        (
            "--dataset-size 80 --batch-size 10 --sampling spaced-poisson:5",
            Schedule::Sampling(Sampling::SpacedPoisson { dataset_size: 80, min_sep: 5, sampling_prob: 0.25 }),
        ),
        (
            "--dataset-size 80 --batch-size 10 --sampling none",
            Schedule::Participation(Participation::Cyclic { separation: 8, max_participations: 3 }),
        ),
        (
            "--setting federated --min-sep 6 --max-participations 2",
            Schedule::Sampling(Sampling::MinSep { min_sep: 6, max_participations: 2 }),
        ),
        (
            "--min-sep 6 --max-participations 2",
            Schedule::Sampling(Sampling::MinSep { min_sep: 6, max_participations: 2 }),
        ),
    ];
    for (line, schedule) in cases {
        let (_, plan) = plan(&format!("plan --steps 24 --mu 1 --strategy blt:2 {line}"));
        let problem = Problem {
            num_steps: 24,
            workload: Workload::Prefix,
            participation: schedule.participation(24).unwrap(),
            objective: Objective::Max,
        };
        let strategy = blt::optimize(&problem, 2, &mut unobserved()).unwrap().factorization;
        let terms =
            Terms { schedule, adjacency: Adjacency::ZeroOut, unit: PrivacyUnit::Example, clip_norm: 1.0 };
        let unnamed = calibrate(&strategy, &terms, &Workload::Prefix, &goal).unwrap();
        let named = Certificate { strategy: "blt:2".into(), ..Certificate::of(&unnamed).unwrap() };
        assert_eq!(plan, named.attach(unnamed).unwrap(), "{line}");
    }
}

#[test]
fn amplified_plans_and_other_terms() {
    let data = "--dataset-size 400 --batch-size 10 --steps 24";
    // The noise multiplier is that of one round, as in DP-SGD.
    let line =
        format!("plan {data} --noise-multiplier 1.5 --delta 1e-5 --strategy identity --sampling poisson");
    let (got, plain) = plan(&line);
    assert_eq!(got["claim"]["method"], "amplified");
    assert!((plain.stddev() / 1.5 - 1.0).abs() < 1e-6);
    let expected = account::Subsampled::new(1.5, 10.0 / 400.0, 24).unwrap().epsilon(1e-5).unwrap();
    assert!((number(&got["claim"]["epsilon"]) / expected - 1.0).abs() < 1e-4);
    let line = format!("plan {data} --epsilon 1 --delta 1e-6 -s banded-opt:4 --sampling block-poisson:4");
    let (_, banded) = plan(&line);
    let sampling = Sampling::BlockPoisson { dataset_size: 400, num_blocks: 4, sampling_prob: 0.1 };
    assert_eq!(banded.sampling(), Some(sampling));
    let (_, other) = plan(
        "plan --steps 24 --mu 0.5 --delta 1e-9 -s banded:3 --clip-norm 0.25 --unit user --adjacency replace-one -w momentum:0.9 --rounds 20",
    );
    let certificate = Certificate::of(&other).unwrap();
    assert_eq!((certificate.clip_norm, certificate.claim.delta), (0.25, 1e-9));
    assert_eq!((certificate.unit, certificate.adjacency), (PrivacyUnit::User, Adjacency::ReplaceOne));
    assert_eq!(certificate.workload, Workload::momentum(0.9, 0.0).unwrap());
    assert_eq!(u32::from(other.rounds()), 20);
}

/// Schemes that are compared alone: the claim says how it is known, and `account` finds it again.
#[test]
fn allocation_and_truncation_say_how_they_are_known() {
    let data = "--dataset-size 400 --batch-size 10 --epochs 2 --epsilon 1 --delta 1e-6";
    let (got, _) = plan(&format!("plan {data} --sampling random-allocation"));
    let claim = &got["claim"];
    assert_eq!((&claim["method"], &claim["redrawn"]["num_bins"]), (&"redrawn".into(), &40.into()));
    assert_eq!(claim["redrawn"]["num_epochs"], 2);
    let (got, _) = plan(&format!("plan {data} --sampling truncated-poisson:40"));
    let claim = &got["claim"];
    assert_eq!(claim["method"], "amplified");
    let charge = number(&claim["amplified"]["truncation_delta"]);
    assert!(charge > 0.0 && charge < 1e-7, "{charge}");
    for row in got["candidates"].as_array().unwrap() {
        assert!(row["sampling"].as_str().unwrap().starts_with("truncated-poisson:40"), "{row}");
    }
}

/// With all mechanisms compared, μ is that of the whole run, and every row has the ε that it has at δ.
#[test]
fn a_comparison_is_at_one_epsilon() {
    let data = "--dataset-size 80 --batch-size 10 --steps 24";
    let expected = account::epsilon_of_delta(0.5, 1e-6).unwrap();
    for goal in ["--mu 0.5", "--noise-multiplier 2"] {
        let (got, _) = plan(&format!("plan {data} {goal}"));
        let rows = got["candidates"].as_array().unwrap();
        assert!(rows.iter().any(|row| row["method"] == "amplified"));
        for row in rows {
            let epsilon = number(&row["epsilon"]);
            assert!(epsilon <= expected * (1.0 + 1e-9) && epsilon > 0.999 * expected, "{row}");
            assert!(number(&row["relative_noise"]) > 0.0);
        }
    }
    // One strategy was asked for: independent noise is at the same ε.
    let (got, banded) =
        plan(&format!("plan {data} --noise-multiplier 1.25 -s banded-opt:4 --sampling block-poisson:4"));
    assert_eq!(
        got["claim"]["amplified"]["noise_multiplier"].as_f64().map(|sigma| (sigma / 1.25 - 1.0).abs() < 1e-6),
        Some(true)
    );
    let epsilons =
        got["candidates"].as_array().unwrap().iter().map(|row| number(&row["epsilon"])).collect::<Vec<_>>();
    assert!(epsilons.len() == 2 && (epsilons[0] / epsilons[1] - 1.0).abs() < 1e-3, "{epsilons:?}");
    assert!(banded.stddev() > 0.0);
    // Where there is no ε to calibrate to, nothing is compared.
    let (got, _) = plan("plan --steps 24 --mu 1e-9 --strategy blt:2");
    assert_eq!(got["candidates"].as_array().unwrap().len(), 1);
    assert!(got["candidates"][0]["relative_noise"].is_null() && got["reason"] == "blt:2: as asked for");
    let (_, text, _) = run(&words("plan --steps 24 --mu 1e-9 --strategy blt:2"));
    assert!(text.contains("Left out\n  identity: epsilon of blt:2 is 0"), "{text}");
    let (code, _, stderr) = run(&words("plan --steps 24 --mu 1e-9"));
    assert!(code == 2 && stderr.contains("expected one with a finite ε above 0 at δ = 1e-6"), "{stderr}");
}

/// The limit of state is about what runs: rows that a ring makes ahead count.
#[test]
fn memory_is_what_the_engine_holds() {
    let line = "plan --steps 200 --participation minsep:50,3 --epsilon 2 --delta 1e-6";
    let (got, plan) = plan(&format!("{line} --max-state-bytes 40"));
    let key = corrnoise::Key::from_bytes([1; 32], "limit");
    let shard = corrnoise::Shard::whole(1000).unwrap();
    let held = corrnoise::Mechanism::cpu(&plan, key, shard).unwrap().state_bytes();
    assert!(held <= 40_000, "{held} bytes for 1000 parameters: {}", got["reason"]);
    let chosen = got["candidates"].as_array().unwrap().iter().find(|row| row["recommended"] == true).unwrap();
    assert_eq!(chosen["engine_bytes_per_param"], held / 1000);
    let (_, text, _) = run(&words(&format!("{line} --strategy banded:10")));
    assert!(text.contains("  36 + 28 B  "), "{text}");
    let (code, _, stderr) = run(&words(&format!("{line} --strategy banded:10 --max-state-bytes 40")));
    assert!(
        code == 2 && stderr.contains("state is 36 + 28 bytes per parameter: expected at most 40"),
        "{stderr}"
    );
}

#[test]
fn a_delta_of_one_over_the_dataset_size_is_noted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plan.json");
    let line = format!(
        "plan --steps 8 --dataset-size 80 --batch-size 10 --epsilon 1 --delta 0.0125 -s identity --out {}",
        path.display()
    );
    let expected = "corrnoise: warning: delta is 1.25e-2 for a dataset of 80: expected well below 1/80,";
    for line in [line.clone(), format!("{line} --json"), format!("account {}", path.display())] {
        let (code, stdout, stderr) = run(&words(&line));
        assert!(code == 0 && stderr.starts_with(expected) && stderr.lines().count() == 1, "{stderr}");
        if line.ends_with("--json") {
            let got: Value = serde_json::from_str(&stdout).unwrap();
            assert_eq!(format!("corrnoise: warning: {}\n", got["warnings"][0].as_str().unwrap()), stderr);
        }
    }
    let (code, _, stderr) = run(&words(&line.replace("0.0125", "0.012")));
    assert_eq!((code, stderr.as_str()), (0, ""));
}

#[test]
fn inspect_reads_a_plan() {
    let (_folder, path) =
        written("plan --steps 40 --mu 1 --strategy blt:2 --participation minsep:9,3 --adjacency replace-one");
    let path = path.to_str().unwrap();
    let plan = Plan::load(path).unwrap();
    let got = json(&["inspect", path]);
    assert_eq!((&got["strategy"], &got["steps"]), (&"blt:2".into(), &40.into()));
    let running = Factorization::from_form(plan.form(), 40).unwrap();
    let minsep = Participation::MinSep { min_sep: 9, max_participations: 3 };
    let loss = running.loss(&Workload::Prefix, &minsep, Adjacency::ReplaceOne).unwrap();
    assert_eq!(number(&got["sensitivity"]), loss.sensitivity.value);
    assert_eq!(number(&got["max_loss"]), loss.max_loss());
    assert_eq!((&got["participation"], &got["adjacency"]), (&"minsep:9,3".into(), &"replace-one".into()));
    let columns = [running.matrix().unwrap(), running.inverse().unwrap()];
    for (key, matrix) in ["strategy_coefs", "noising_coefs"].into_iter().zip(columns) {
        for (t, value) in got[key].as_array().unwrap().iter().enumerate() {
            assert!((number(value) - matrix.get(t, 0)).abs() < 1e-12, "{key}[{t}]");
        }
    }
    let other = json(&["inspect", path, "-p", "single", "--adjacency", "zero-out"]);
    let loss = running.loss(&Workload::Prefix, &Participation::Single, Adjacency::ZeroOut).unwrap();
    assert_eq!(number(&other["sensitivity"]), loss.sensitivity.value);
}

/// Tests plans without a certificate, of every form, with restarts and scales.
#[test]
fn inspect_reads_every_form() {
    let plans = common::Plans::new();
    for (name, form) in common::forms() {
        let picture = plans.text(&format!("{name}.svg"));
        let got = json(&["inspect", &plans.text(&format!("{name}.json")), "--plot", &picture]);
        let running = Factorization::from_form(&form, 30).unwrap();
        let loss = running.loss(&Workload::Prefix, &Participation::Single, Adjacency::ZeroOut).unwrap();
        assert_eq!(number(&got["rms_loss"]), loss.rms_loss(), "{name}");
        assert!(std::fs::metadata(&picture).unwrap().len() > 10_000, "{name}");
    }
    let strategy = Strategy::banded_square_root(4).unwrap();
    let scaled = Factorization::new(strategy, 30).unwrap().column_normalized().unwrap().form().unwrap();
    Plan::new(30, scaled.clone(), 0.5).unwrap().save(plans.path("scaled.json")).unwrap();
    let got = json(&["inspect", &plans.text("scaled.json")]);
    let first = Factorization::from_form(&scaled, 30).unwrap().matrix().unwrap().get(0, 0);
    assert_eq!(number(&got["strategy_coefs"][0]), first);
    assert!((number(&got["sensitivity"]) - 1.0).abs() < 1e-6);
}

#[test]
fn account_and_verify_confirm_a_plan() {
    let (_folder, path) = written("plan --steps 24 --epsilon 2 --delta 1e-7 --strategy banded-opt:4");
    let claim = verify(&Plan::load(&path).unwrap()).unwrap().claim;
    let path = path.to_str().unwrap();
    let got = json(&["account", path]);
    assert_keys(
        &got,
        &[
            "gdp_mu",
            "noise_multiplier",
            "zcdp_rho",
            "epsilon",
            "delta",
            "method",
            "holds",
            "reason",
            "claim",
            "loss_change",
        ],
    );
    assert_eq!(got["holds"], true);
    assert_eq!((number(&got["epsilon"]), number(&got["gdp_mu"])), (claim.epsilon, claim.gdp_mu));
    assert_eq!(got["claim"], serde_json::to_value(&claim).unwrap());
    let got = json(&["verify", "--quick", path]);
    let checks = got["checks"].as_array().unwrap();
    assert_eq!((&checks[0]["name"], &checks[0]["verdict"]), (&"the plan's claim".into(), &"passed".into()));
    // Texts name the strategy as it was asked for.
    assert!(checks[0]["detail"].as_str().unwrap().ends_with("; banded-opt:4"), "{}", checks[0]);
    let (_, text, _) = run(&["account", path]);
    assert!(text.starts_with("banded-opt:4: the claim holds"), "{text}");
}

/// Changes a plan by hand and gives it the fingerprint that the refusal of the change tells.
fn reseal(path: &Path, from: &str, to: &str) {
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.contains(from), "{text}");
    let text = text.replacen(from, to, 1);
    let message = Plan::from_json(&text).unwrap_err().to_string();
    let word_after = |marker: &str| {
        let rest = &message[message.find(marker).unwrap() + marker.len()..];
        rest[..64].to_owned()
    };
    let (old, new) = (word_after("fingerprint is "), word_after("content has "));
    std::fs::write(path, text.replacen(&old, &new, 1)).unwrap();
    Plan::load(path).unwrap();
}

#[test]
fn a_claim_that_does_not_hold_is_exit_code_1() {
    let (_folder, path) = written("plan --steps 24 --epsilon 2 --delta 1e-7 --strategy banded-opt:4");
    let epsilon = Certificate::of(&Plan::load(&path).unwrap()).unwrap().claim.epsilon;
    let original = std::fs::read_to_string(&path).unwrap();
    let edits = [
        (format!("\"epsilon\": {epsilon}"), format!("\"epsilon\": {}", epsilon / 2.0), "epsilon"),
        ("\"delta\": 1e-7".into(), "\"delta\": 1e-9".into(), "epsilon"),
        ("\"participation\": \"single\"".into(), "\"participation\": \"full\"".into(), "claim"),
    ];
    for (from, to, fragment) in edits {
        std::fs::write(&path, &original).unwrap();
        reseal(&path, &from, &to);
        let text = path.to_str().unwrap();
        let (code, stdout, stderr) = run(&["account", text]);
        assert_eq!((code, stdout.as_str(), stderr.lines().count()), (1, "", 1), "{to}: {stderr}");
        assert!(stderr.contains("does not hold") && stderr.contains(fragment), "{to}: {stderr}");
        let (code, stdout, _) = run(&["account", text, "--json"]);
        let got: Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!((code, &got["holds"], &got["epsilon"]), (1, &false.into(), &Value::Null));
        let (code, stdout, _) = run(&["verify", "--quick", text]);
        assert_eq!(code, 1);
        let line = stdout.lines().next().unwrap();
        assert!(line.starts_with("FAILED") && line.contains("does not hold"), "{line}");
    }
}

/// A plan whose noise is not what its certificate is for is refused by every command that loads it, under any fingerprint.
#[test]
fn noise_that_is_not_the_certificate_s_does_not_load() {
    let (_folder, path) = written("plan --steps 24 --epsilon 2 --delta 1e-7 --strategy banded-opt:4");
    let stddev = Plan::load(&path).unwrap().stddev();
    let original = std::fs::read_to_string(&path).unwrap();
    let edits = [
        (
            format!("\"stddev\": {stddev}"),
            "\"stddev\": 0.0".into(),
            "stddev is 0: expected finite and above 0",
        ),
        (format!("\"stddev\": {stddev}"), format!("\"stddev\": {}", stddev / 2.0), "its stddev is"),
        ("\"clip_norm\": 1.0".into(), "\"clip_norm\": 0.5".into(), "its certificate is for"),
        ("\"noise_multiplier\"".into(), "\"noise\"".into(), "claim.noise_multiplier is missing"),
    ];
    let text = path.to_str().unwrap();
    for (from, to, fragment) in edits {
        assert!(original.contains(&from), "{from}");
        std::fs::write(&path, original.replacen(&from, &to, 1)).unwrap();
        for line in [vec!["account", text], vec!["verify", "--quick", text], vec!["inspect", text]] {
            let (code, stdout, stderr) = run(&line);
            assert_eq!((code, stdout.as_str(), stderr.lines().count()), (2, "", 1), "{to}: {stderr}");
            assert!(stderr.contains("refused") && stderr.contains(fragment), "{to}: {stderr}");
        }
    }
}

#[test]
fn a_plan_without_a_claim_does_not_pass() {
    let plans = common::Plans::new();
    let (code, stdout, _) = run(&["verify", "--quick", &plans.text("blt.json")]);
    assert!(code == 1 && stdout.contains("no privacy claim"), "{stdout}");
}

#[test]
fn an_old_file_is_replaced_and_people_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plan.json");
    let line = format!("plan --steps 8 --mu 1 --out {}", path.display());
    let (code, first, _) = run(&words(&line));
    assert!(code == 0 && first.contains("Recommended:") && first.contains("Claim: ε = "), "{first}");
    assert!(first.contains("provided that") && !first.contains("replaced"), "{first}");
    std::fs::write(&path, "old").unwrap();
    let (_, second, _) = run(&words(&line));
    assert!(second.contains("replaced"), "{second}");
    assert_eq!(common::files(folder.path()), ["plan.json"]);
    Plan::load(&path).unwrap();
}

/// Command lines, each with the same options in the keywords of other languages. None ends in a search for a kernel, whose last digits
/// change with a machine's logarithms.
const OTHER_LANGUAGES: [(&str, &str); 10] = [
    ("--steps 24 --mu 1 -s banded:5", r#"{"steps": 24, "mu": 1, "strategy": "banded:5"}"#),
    (
        "--epochs 0.1 --dataset-size 3400 --batch-size 10 --epsilon 2 --delta 1e-6",
        r#"{"epochs": 0.1, "dataset_size": 3400, "batch_size": 10, "epsilon": 2, "delta": 1e-6}"#,
    ),
    (
        "--steps 24 --min-sep 6 --max-participations 2 --epsilon 3 --delta 1e-7 -s blt:2",
        r#"{"steps": 24, "min_sep": 6, "max_participations": 2, "epsilon": 3, "delta": 1e-7, "strategy": "blt:2"}"#,
    ),
    (
        "--steps 24 -p minsep:7,3 --mu 0.5 --delta 1e-9 -s bisr:4 --clip-norm 0.25 --unit user --adjacency replace-one -w momentum:0.9,0.01",
        r#"{"steps": 24, "participation": "minsep:7,3", "mu": 0.5, "delta": 1e-9, "strategy": "bisr:4", "clip_norm": 0.25,
            "unit": "user", "adjacency": "replace-one", "workload": "momentum:0.9,0.01"}"#,
    ),
    (
        "--steps 24 --mu 1 -s banded-opt:4 --objective rms --rounds 20 -w nesterov:0.8",
        r#"{"steps": 24, "mu": 1, "strategy": "banded-opt:4", "objective": "rms", "rounds": 20, "workload": "nesterov:0.8"}"#,
    ),
    (
        "--steps 24 --dataset-size 400 --batch-size 10 --noise-multiplier 1.5 --delta 1e-5 -s identity --sampling poisson",
        r#"{"steps": 24, "dataset_size": 400, "batch_size": 10, "noise_multiplier": 1.5, "delta": 1e-5,
            "strategy": "identity", "sampling": "poisson"}"#,
    ),
    (
        "--steps 24 --dataset-size 400 --batch-size 10 --noise-multiplier 1.25 -s banded-opt:4 --sampling block-poisson:4",
        r#"{"steps": 24, "dataset_size": 400, "batch_size": 10, "noise_multiplier": 1.25, "strategy": "banded-opt:4",
            "sampling": "block-poisson:4"}"#,
    ),
    (
        "--steps 24 --dataset-size 80 --batch-size 10 --mu 2 -s toeplitz --sampling none",
        r#"{"steps": 24, "dataset_size": 80, "batch_size": 10, "mu": 2, "strategy": "toeplitz", "sampling": "none"}"#,
    ),
    (
        "--steps 24 --dataset-size 4000 --batch-size 10 --noise-multiplier 2",
        r#"{"steps": 24, "dataset_size": 4000, "batch_size": 10, "noise_multiplier": 2}"#,
    ),
    ("--steps 30 --mu 1 --max-state-bytes 8", r#"{"steps": 30, "mu": 1, "max_state_bytes": 8}"#),
];

/// True if values are equal but for the last digits: logarithms and FFTs round differently from machine to machine.
fn close(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            (a - b).abs() <= 1e-6 * b.abs()
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| close(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| close(a, b)))
        }
        _ => a == b,
    }
}

/// Checks `tests/data/plans.json`, which the tests of `crates/python` read; `CORRNOISE_BLESS=1` writes it anew.
#[test]
fn the_plans_of_other_languages_are_fresh() {
    let made = OTHER_LANGUAGES.map(|(line, keywords)| {
        let keywords: Value = serde_json::from_str(keywords).unwrap();
        let (got, _) = plan(&format!("plan {line}"));
        serde_json::json!({ "line": line, "keywords": keywords, "plan": got["plan"]["plan"] })
    });
    let made = Value::from(made.to_vec());
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/plans.json");
    if std::env::var_os("CORRNOISE_BLESS").is_some() {
        // The file has one line per plan.
        let lines = made.as_array().unwrap().iter().map(Value::to_string).collect::<Vec<_>>();
        std::fs::write(path, format!("[\n{}\n]\n", lines.join(",\n"))).unwrap();
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    let found: Value = serde_json::from_str(&found).unwrap_or_default();
    assert!(close(&found, &made), "CORRNOISE_BLESS=1 writes {path} anew");
}
