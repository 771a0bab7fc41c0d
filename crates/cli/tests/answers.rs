//! The JSON of every subcommand has the documented keys, and the library's numbers to the last digit.

mod common;

use common::{assert_keys, json, number, run};
use corrnoise::planner::account::{self, Budget, Subsampled};
use corrnoise::planner::optimize::{self, Objective, Problem, unobserved};
use corrnoise::planner::{
    Adjacency, Estimator, Factorization, Participation, Strategy, Workload, strategy::series,
};
use serde_json::Value;

const INSPECT_KEYS: [&str; 21] = [
    "strategy",
    "steps",
    "sensitivity",
    "max_error",
    "rms_error",
    "max_loss",
    "rms_loss",
    "state_bytes_per_param",
    "strategy_coefs",
    "noising_coefs",
    "participation",
    "workload",
    "adjacency",
    "column_normalized",
    "objective",
    "sensitivity_kind",
    "sensitivity_reason",
    "lower_bound",
    "lower_bound_reason",
    "form",
    "rows_per_step",
];

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(number).collect()
}

/// Compares what `inspect` prints with the factorisation it should be about.
fn check(
    line: &[&str],
    factorization: &Factorization,
    workload: &Workload,
    participation: &Participation,
    adjacency: Adjacency,
) {
    let got = json(&[&["inspect"], line].concat());
    assert_keys(&got, &INSPECT_KEYS);
    let loss = factorization.loss(workload, participation, adjacency).unwrap();
    for (key, expected) in [
        ("sensitivity", loss.sensitivity.value),
        ("max_error", loss.errors.max),
        ("rms_error", loss.errors.rms),
        ("max_loss", loss.max_loss()),
        ("rms_loss", loss.rms_loss()),
    ] {
        assert_eq!(number(&got[key]), expected, "{line:?}: {key}");
    }
    assert_eq!(got["state_bytes_per_param"], factorization.state_bytes_per_param().unwrap());
    let n = factorization.num_steps();
    for key in ["strategy_coefs", "noising_coefs"] {
        assert_eq!(numbers(&got[key]).len(), n.min(16), "{line:?}: {key}");
    }
    let is_tree = matches!(factorization.strategy(), Strategy::Tree(Estimator::Streaming));
    if !is_tree {
        let columns = [factorization.matrix().unwrap(), factorization.inverse().unwrap()];
        for (key, matrix) in ["strategy_coefs", "noising_coefs"].into_iter().zip(columns) {
            for (t, value) in numbers(&got[key]).into_iter().enumerate() {
                let expected = matrix.get(t, 0);
                assert!(
                    (value - expected).abs() <= 1e-13 * expected.abs().max(1e-3),
                    "{line:?}: {key}[{t}] {value} {expected}"
                );
            }
        }
    }
}

#[test]
fn inspect_has_the_library_s_numbers() {
    let (n, zero_out) = (40, Adjacency::ZeroOut);
    let prefix = Workload::Prefix;
    let minsep = Participation::MinSep { min_sep: 9, max_participations: 3 };
    let problem = |objective| Problem {
        num_steps: n,
        workload: Workload::Prefix,
        participation: minsep.clone(),
        objective,
    };
    let streaming = Problem::streaming(n, Objective::Max);
    let make = |strategy| Factorization::new(strategy, n).unwrap();
    let observer = &mut unobserved();
    let plain = [
        ("identity", make(Strategy::Identity)),
        ("workload", make(Strategy::Output(Workload::Prefix))),
        ("toeplitz", make(Strategy::square_root(Workload::Prefix).unwrap())),
        ("toeplitz-damped:0.03", make(Strategy::damped(0.03).unwrap())),
        ("banded:7", make(Strategy::banded_square_root(7).unwrap())),
        ("bisr:5", make(Strategy::banded_inverse_square_root(5).unwrap())),
        ("tree", make(Strategy::Tree(Estimator::Streaming))),
        ("tree-full", make(Strategy::Tree(Estimator::Full))),
        ("toeplitz-opt", optimize::toeplitz::full(&streaming, observer).unwrap().factorization),
        ("banded-opt:6", optimize::toeplitz::banded(&streaming, 6, observer).unwrap().factorization),
        ("banded-full:6", optimize::banded::optimize(&streaming, 6, observer).unwrap().factorization),
        ("blt:2", optimize::blt::optimize(&streaming, 2, observer).unwrap().factorization),
        ("dense", optimize::dense::optimize(&streaming, observer).unwrap().factorization),
        ("bandinv-opt:4", optimize::toeplitz::banded_inverse(&streaming, 4, observer).unwrap().factorization),
    ];
    for (name, factorization) in &plain {
        let line = ["--strategy", name, "--steps", "40"];
        check(&line, factorization, &prefix, &Participation::Single, zero_out);
    }
    let line = ["-s", "banded:7", "-n", "40", "--column-normalize", "--adjacency", "replace-one"];
    let normalized = plain[4].1.clone().column_normalized().unwrap();
    check(&line, &normalized, &prefix, &Participation::Single, Adjacency::ReplaceOne);
    let line = ["-s", "blt:3", "-n", "40", "-p", "minsep:9,3", "--objective", "rms"];
    let best = optimize::blt::optimize(&problem(Objective::Rms), 3, observer).unwrap().factorization;
    check(&line, &best, &prefix, &minsep, zero_out);
    let line = ["-s", "dense", "-n", "40", "-p", "minsep:9,3"];
    let best = optimize::dense::optimize(&problem(Objective::Max), observer).unwrap().factorization;
    check(&line, &best, &prefix, &minsep, zero_out);
    let momentum = Workload::momentum(0.9, 0.01).unwrap();
    let line = ["-s", "toeplitz", "-n", "40", "-w", "momentum:0.9,0.01", "-p", "cyclic:8,5"];
    let cyclic = Participation::Cyclic { separation: 8, max_participations: 5 };
    check(&line, &make(Strategy::square_root(momentum.clone()).unwrap()), &momentum, &cyclic, zero_out);
    let nesterov = Workload::nesterov(0.5).unwrap();
    let line = ["-s", "workload", "-n", "40", "-w", "nesterov:0.5", "-p", "full"];
    check(&line, &make(Strategy::Output(nesterov.clone())), &nesterov, &Participation::Full, zero_out);
}

#[test]
fn coefficients_of_a_large_or_tiny_problem() {
    let got = json(&["inspect", "-s", "toeplitz", "-n", "1e6"]);
    assert_eq!(numbers(&got["strategy_coefs"]), series::binomial(-0.5, 16));
    assert_eq!(numbers(&got["noising_coefs"]), series::binomial(0.5, 16));
    for strategy in ["identity", "tree", "tree-full", "dense", "blt:1", "bandinv-opt:1"] {
        let got = json(&["inspect", "-s", strategy, "-n", "1"]);
        assert_eq!(numbers(&got["strategy_coefs"]).len(), 1, "{strategy}");
    }
}

#[test]
fn account_converts_in_every_direction() {
    let keys = ["gdp_mu", "noise_multiplier", "zcdp_rho", "epsilon", "delta", "method"];
    let got = json(&["account", "--epsilon", "8", "--delta", "1e-6"]);
    assert_keys(&got, &keys);
    let mu = account::gdp_mu_of_budget(Budget { epsilon: 8.0, delta: 1e-6 }).unwrap();
    assert_eq!(number(&got["gdp_mu"]), mu);
    assert_eq!(number(&got["noise_multiplier"]), 1.0 / mu);
    assert_eq!(number(&got["zcdp_rho"]), account::zcdp_rho_of_gdp(mu));
    let got = json(&["account", "--noise-multiplier", "1.3", "--delta", "1e-7"]);
    assert_eq!(number(&got["noise_multiplier"]), 1.3);
    assert_eq!(number(&got["epsilon"]), account::epsilon_of_delta(1.0 / 1.3, 1e-7).unwrap());
    let got = json(&["account", "--rho", "0.3", "--epsilon", "0"]);
    assert_eq!(number(&got["zcdp_rho"]), 0.3);
    assert_eq!(number(&got["delta"]), account::delta_of_epsilon(0.6_f64.sqrt(), 0.0).unwrap());
    let got = json(&["account", "--mu", "0.7"]);
    assert!(got["epsilon"].is_null() && got["delta"].is_null());
}

#[test]
fn account_knows_subsampling() {
    let mechanism = Subsampled::new(0.8, 0.01, 500).unwrap();
    let line = ["account", "--sampling-prob", "0.01", "--steps", "500", "--noise-multiplier", "0.8"];
    let got = json(&[&line[..], &["--delta", "1e-6"]].concat());
    assert_eq!(number(&got["epsilon"]), mechanism.epsilon(1e-6).unwrap());
    assert!(got["gdp_mu"].is_null());
    let got = json(&[&line[..], &["--epsilon", "2"]].concat());
    assert_eq!(number(&got["delta"]), mechanism.delta(2.0).unwrap());
    let got =
        json(&["account", "--sampling-prob", "0.01", "--steps", "500", "--epsilon", "2", "--delta", "1e-6"]);
    let sigma = number(&got["noise_multiplier"]);
    let epsilon = |sigma| Subsampled::new(sigma, 0.01, 500).unwrap().epsilon(1e-6).unwrap();
    assert!(epsilon(sigma) <= 2.0 && epsilon(sigma * 0.999) > 2.0, "{sigma}");
}

#[test]
fn bench_measures_and_predicts() {
    let got = json(&[
        "bench",
        "--params",
        "1e6",
        "--seq",
        "10",
        "--batch",
        "100",
        "--steps",
        "1",
        "--quick",
        "--mfu",
        "0.5",
        "--machine",
        "mine:gbps=1000,sms=100,ghz=1.5,tflops=200",
    ]);
    assert_keys(&got, &["machine", "model", "ways", "overheads", "remarks"]);
    assert_keys(&got["machine"], &["device", "threads", "flops_per_second", "bytes_per_second", "forms"]);
    let forms = got["machine"]["forms"].as_array().unwrap();
    assert_eq!(forms.len(), 7);
    for form in forms {
        assert!(
            number(&form["params_per_second"]) > 0.0
                && (0.0..=1.0).contains(&number(&form["share_of_bandwidth"])),
            "{form}"
        );
        // After `prepare` a step moves the gradient and one row, whatever the form.
        let prepare = &form["prepare"];
        assert_eq!(number(&prepare["critical_bytes_per_param"]), 12.0);
        assert!(number(&prepare["step_params_per_second"]) > 0.0, "{prepare}");
        assert!(number(&prepare["prepare_params_per_second"]) > 0.0, "{prepare}");
    }
    ways_are_predicted(&got);
    assert_eq!(number(&got["model"]["flops_per_step"]), 6.0 * 1e6 * 10.0 * 100.0);
    // BLT 4 on an A100: 40 bytes at 1.555 TB/s for 10⁶ parameters, against 6·10⁹ operations at half of 312 TFLOP/s.
    let overheads = got["overheads"].as_array().unwrap();
    let a100 = overheads.iter().find(|o| o["form"] == "BLT 4" && o["device"] == "A100 40GB").unwrap();
    let expected = (1e6 * 40.0 / 1.555e12) / (6e9 / 156e12);
    assert!((number(&a100["overhead"]) / expected - 1.0).abs() < 1e-12 && a100["source"] == "predicted");
    let remarks = got["remarks"].as_array().unwrap();
    let shares: Vec<String> = remarks.iter().map(|r| format!("{:.2e}", number(&r["flops_only"]))).collect();
    assert_eq!(shares, ["1.67e-5", "1.67e-2"], "0.0017 % and 1.7 %");
    // The second one is bound by memory: 408 bytes a parameter take longer than 6000 operations.
    let with_memory = remarks[1]["with_memory"].as_array().unwrap();
    assert!(with_memory.len() == 5 && with_memory[1..].iter().all(|share| number(&share["overhead"]) > 1.0));
}

/// Bytes of every way to run a form, and the times that follow from them and from a machine's numbers.
fn ways_are_predicted(got: &serde_json::Value) {
    let ways = got["ways"].as_array().unwrap();
    for (form, way, rows, critical, beside) in [
        ("independent", "fused", 1, 8.0, 0.0),
        ("BLT 4", "fused", 1, 40.0, 0.0),
        ("BLT 4", "ahead", 8, 24.0, 0.0),
        ("BLT 4", "prepared", 8, 12.0, 12.0),
        ("ring 16", "ahead", 8, 23.5, 0.0),
        ("ring 64", "prepared", 16, 12.0, 19.75),
        ("regenerate 4", "prepared", 8, 12.0, 4.0),
    ] {
        let is_it = |cost: &&serde_json::Value| cost["form"] == form && cost["way"] == way;
        let cost = ways.iter().find(is_it).unwrap();
        assert_eq!(cost["rows_ahead"], rows, "{cost}");
        assert_eq!(number(&cost["critical_bytes_per_param"]), critical, "{cost}");
        assert_eq!(number(&cost["background_bytes_per_param"]), beside, "{cost}");
        let predicted = cost["predicted"].as_array().unwrap();
        let names: Vec<&str> = predicted.iter().map(|own| own["device"].as_str().unwrap()).collect();
        assert_eq!(names, ["A100 40GB", "H100 SXM", "B200", "mine"]);
        assert!(predicted.iter().all(|own| own["source"] == "predicted"));
        // On the user's machine, memory bounds what only adds.
        let seconds = number(&predicted[3]["critical_seconds_per_param"]);
        if way == "prepared" {
            assert!((seconds / (critical / 1e12) - 1.0).abs() < 1e-12, "{cost}");
        }
    }
}

#[test]
fn presets_cost_what_their_layers_do() {
    let got = json(&[
        "bench",
        "--preset",
        "resnet50",
        "--batch",
        "2",
        "--steps",
        "1",
        "--quick",
        "--clipping-factor",
        "1.5",
    ]);
    assert_eq!(got["model"]["params"], 25_557_032);
    assert_eq!(number(&got["model"]["flops_per_step"]), 6.0 * 4.09e9 * 2.0 * 1.5);
    assert!(got["model"]["seq"].is_null());
}

#[test]
fn verify_passes_and_says_what_it_skipped() {
    let got = json(&["verify", "--quick"]);
    assert_keys(&got, &["passed", "checks"]);
    assert_eq!(got["passed"], true);
    let checks = got["checks"].as_array().unwrap();
    assert!(checks.len() >= 12);
    for check in checks {
        assert_keys(check, &["name", "verdict", "seconds", "detail"]);
        let allowed: &[&str] = if check["name"].as_str().unwrap().contains("CUDA") {
            &["passed", "skipped"]
        } else {
            &["passed"]
        };
        assert!(allowed.contains(&check["verdict"].as_str().unwrap()), "{check}");
    }
}

#[test]
fn completions_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let got = json(&["completions", shell]);
        assert_keys(&got, &["shell", "script"]);
        assert!(got["script"].as_str().unwrap().contains("inspect"));
    }
}

#[test]
fn people_get_tables_without_colours_in_a_pipe() {
    for line in [
        &["inspect", "-s", "blt:2", "-n", "64"][..],
        &["account", "--mu", "1"],
        &["account", "--epsilon", "1", "--delta", "1e-5"],
        &["--help"],
        &["inspect", "--help"],
        &["--version"],
    ] {
        let (code, stdout, stderr) = run(line);
        assert_eq!((code, stderr.as_str()), (0, ""), "{line:?}");
        assert!(!stdout.contains('\x1b') && stdout.ends_with('\n'), "{line:?}");
    }
}
