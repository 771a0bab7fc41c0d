//! Hostile plans of a few kilobytes: a command that reads one ends soon and in little memory, with an answer or one clear line.
#![cfg(unix)]

use corrnoise::planner::{
    Adjacency, Certificate, Claim, Exactness, Method, Participation, PrivacyUnit, Schedule, Workload,
};
use corrnoise::{Form, Plan, Sampling};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const MOST_STEPS: u64 = 1 << 40;

/// A plan with a claim of the right shape and made-up numbers: whoever checks it has to compute them.
fn plan(num_steps: u64, form: Form, schedule: &Schedule, workload: &Workload) -> Plan {
    let claim = Claim {
        epsilon: 1.0,
        delta: 1e-6,
        tail_delta: 0.0,
        method: Method::Gaussian,
        gdp_mu: 1.0,
        noise_multiplier: 1.0,
        sensitivity: 1.0,
        sensitivity_kind: Exactness::Exact,
        amplified: None,
        allocated: None,
        redrawn: None,
        confident: None,
        assumptions: Vec::new(),
    };
    let participation = match schedule {
        Schedule::Participation(participation) => participation.clone(),
        Schedule::Sampling(_) => Participation::Full,
    };
    let certificate = Certificate {
        version: 3,
        planner: "made up".into(),
        strategy: "made up".into(),
        workload: workload.clone(),
        participation,
        adjacency: Adjacency::ZeroOut,
        unit: PrivacyUnit::Example,
        clip_norm: 1.0,
        claim,
        utility: None,
    };
    let plan = Plan::new(num_steps, form, 1.0).unwrap();
    let plan = match schedule.sampling() {
        Some(sampling) => plan.with_sampling(sampling).unwrap(),
        None => plan,
    };
    certificate.attach(plan).unwrap()
}

fn falling(len: usize) -> Vec<f64> {
    (0..len).map(|t| 1.0 / (1.0 + t as f64)).collect()
}

/// Forms of a few numbers, for any number of steps.
fn forms() -> Vec<(&'static str, Form)> {
    let signed: Vec<f64> = (0..40).map(|t| if t % 3 == 1 { -0.3 } else { 1.0 } / (1.0 + t as f64)).collect();
    vec![
        ("independent", Form::independent()),
        ("scaled", Form::independent().with_output_scale(vec![2.0]).unwrap()),
        ("blt", Form::blt(&[0.3, 0.1], &[0.6, 0.99]).unwrap()),
        ("blt that increases", Form::blt(&[0.9, 0.4], &[0.6, 0.99]).unwrap()),
        ("blt, negative", Form::blt(&[0.3, -0.1], &[0.5, 0.4]).unwrap()),
        ("blt, equal", Form::blt(&[0.3, 0.1], &[0.5, 0.5]).unwrap()),
        ("blt, one parameter", Form::blt(&[0.5], &[0.5]).unwrap()),
        ("blt, scaled", Form::blt(&[0.3], &[0.6]).unwrap().with_output_scale(vec![0.5]).unwrap()),
        ("ring", Form::banded_toeplitz(&falling(5)).unwrap()),
        ("ring, signed", Form::banded_toeplitz(&signed).unwrap()),
        ("ring, long", Form::banded_toeplitz(&falling(3000)).unwrap()),
        ("inverse", Form::regenerate(&[1.0, -0.5, -0.1]).unwrap()),
        ("inverse, signed", Form::regenerate(&[1.0, 0.5, -0.1]).unwrap()),
        ("inverse, long", Form::regenerate(&falling(3000)).unwrap()),
    ]
}

fn schedules(n: u64) -> Vec<Schedule> {
    let n = n as usize;
    let cyclic = |separation: usize, max_participations: usize| Participation::Cyclic {
        separation,
        max_participations: max_participations.min(n.div_ceil(separation)),
    };
    let min_sep = |min_sep: usize, max_participations: usize| Participation::MinSep {
        min_sep,
        max_participations: max_participations.min(n.div_ceil(min_sep)),
    };
    let long: Vec<usize> = (0..4000).map(|t| t * 3).filter(|t| *t < n).collect();
    let mut schedules: Vec<Schedule> = [
        Participation::Single,
        Participation::Full,
        cyclic(1, n / 2),
        cyclic(2, n),
        cyclic(1000, 1_000_000),
        cyclic(n / 2 + 1, 2),
        min_sep(1, n),
        min_sep(2, n / 3),
        min_sep(1000, 1_000_000),
        min_sep(n / 2, 2),
        Participation::Patterns(vec![vec![0, 5, n - 1], vec![2]]),
        Participation::Patterns(vec![long]),
    ]
    .map(Schedule::Participation)
    .into();
    schedules.extend(
        [
            Sampling::Cyclic { dataset_size: 1 << 40, num_batches: 7 },
            Sampling::BallsInBins { dataset_size: 1 << 40, num_bins: 1 << 39 },
            Sampling::RandomAllocation { dataset_size: 1 << 40, num_bins: 1 << 39 },
            Sampling::SpacedPoisson { dataset_size: 1 << 40, min_sep: 5, sampling_prob: 1e-9 },
            Sampling::MinSep { min_sep: 3, max_participations: u64::MAX },
        ]
        .map(Schedule::Sampling),
    );
    schedules
}

fn workloads() -> Vec<Workload> {
    vec![
        Workload::Prefix,
        Workload::momentum(0.9, 0.01).unwrap(),
        Workload::toeplitz(falling(2000)).unwrap(),
        Workload::Prefix.with_learning_rates(falling(2000)).unwrap(),
    ]
}

/// All combinations, or one in `every` of them.
fn plans(every: usize) -> Vec<(String, Plan)> {
    let mut plans = Vec::new();
    let mut number = 0;
    for n in [MOST_STEPS, 100_000_000, 10_000_000, 65_536, 16_384, 2_000] {
        for restart in [None, Some(1), Some(3), Some(10_007), Some(MOST_STEPS / 2)] {
            for (name, form) in forms() {
                for schedule in schedules(n) {
                    for workload in workloads() {
                        number += 1;
                        if number % every != 0 {
                            continue;
                        }
                        let form = match restart {
                            Some(steps) => form.clone().with_restarts(steps).unwrap(),
                            None => form.clone(),
                        };
                        let short = |text: String| text.chars().take(90).collect::<String>();
                        let (who, released) =
                            (short(format!("{schedule:?}")), short(format!("{workload:?}")));
                        let said = format!("{n} steps, {name}, restarts {restart:?}, {who}, {released}");
                        plans.push((said, plan(n, form, &schedule, &workload)));
                    }
                }
            }
        }
    }
    plans
}

/// The processor time of all children that have ended: a busy machine makes a command wait, not work.
fn children_time() -> Duration {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::uninit();
    // Safety: the kernel fills the whole structure where it returns 0.
    let usage = unsafe {
        assert_eq!(libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()), 0);
        usage.assume_init()
    };
    let duration = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
    };
    duration(usage.ru_utime) + duration(usage.ru_stime)
}

/// Runs commands on a plan under a limit of memory; returns the processor time of the slowest.
fn read(what: &str, plan: &Plan, folder: &Path) -> Duration {
    let path = folder.join("plan.json");
    plan.save(&path).unwrap();
    let mut slowest = Duration::ZERO;
    for command in ["account", "inspect"] {
        let before = children_time();
        // The limit is on the whole address space, of which the memory in use is a part.
        let limited =
            format!("ulimit -v 1048576; exec {} {command} plan.json", env!("CARGO_BIN_EXE_corrnoise"));
        let output = Command::new("sh").args(["-c", &limited]).current_dir(folder).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        let answered = output.status.code().is_some_and(|code| code <= 2);
        assert!(answered && stderr.lines().count() <= 1, "{command}: {what}: {:?}: {stderr}", output.status);
        slowest = slowest.max(children_time() - before);
    }
    assert!(slowest < Duration::from_secs(20), "{what}: {slowest:?}");
    slowest
}

fn read_all(every: usize) {
    let folder = tempfile::tempdir().unwrap();
    let mut times: Vec<(Duration, String)> = Vec::new();
    for (what, plan) in plans(every) {
        times.push((read(&what, &plan, folder.path()), what));
    }
    times.sort();
    let slowest = times.iter().rev().take(5);
    println!("{} plans; the slowest:", times.len());
    slowest.for_each(|(time, what)| println!("{time:?} {what}"));
}

#[test]
fn some_plans_end_soon_in_little_memory() {
    read_all(1499);
}

/// This test takes hours: `cargo test --release -p corrnoise-cli --test hostile -- --ignored`; with `HOSTILE_EVERY=61`, minutes.
#[test]
#[ignore = "25,000 plans"]
fn all_plans_end_soon_in_little_memory() {
    let every = std::env::var("HOSTILE_EVERY").map_or(1, |every| every.parse().unwrap());
    read_all(every);
}
