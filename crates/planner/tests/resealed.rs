//! Plan files edited at random with a new fingerprint: those still accepted are true, nothing panics, and none takes much time or memory.
//!
//! A fingerprint is no signature: whoever edits a plan can write one that fits, and a certificate that fits too. By default some hundred
//! edits are tried; `CORRNOISE_RESEALED_PLANS=100000` tries as many. The plan that is being read lies in `CARGO_TARGET_TMPDIR`, in case
//! reading it ends the process.

mod oracle;

use corrnoise_core::{Plan, Sampling};
use corrnoise_planner::{
    Adjacency, Blt, Certificate, Estimator, Factorization, Goal, Participation, PrivacyUnit, Schedule,
    Strategy, Terms, Workload, calibrate, certificate, verify,
};
use oracle::random::Random;
use oracle::{Effort, check, small};
use serde_json::{Map, Value, json};
use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The number of edits that are tried by default.
const SAMPLE: usize = 200;
/// The most that one plan may take, in seconds and bytes.
const MOST_SECONDS: f64 = 20.0;
const MOST_BYTES: usize = 1 << 30;
/// The time after which a run is given up.
const HOPELESS: Duration = Duration::from_secs(25);
/// The most steps of plans whose truth is computed.
const BRUTE_FORCE: u64 = 128;

/// An allocator that counts. Requests far beyond the limit fail.
struct Counting;

static CURRENT: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: everything is the system allocator's; a null pointer says that there is no memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = CURRENT.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        if now > 4 * MOST_BYTES {
            CURRENT.fetch_sub(layout.size(), Ordering::Relaxed);
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        CURRENT.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Plans of every class, small ones and some larger ones.
fn bases() -> Vec<Value> {
    let mut plans = Vec::new();
    for class in 0..small::CLASSES {
        let mut random = Random(1000 + class as u64);
        let n = 2 + random.below(20 + 2 * class);
        let made = (0..200).filter_map(|_| small::plan_of(&mut random, class, n).outcome.ok());
        plans.extend(made.take(2));
    }
    let blt = Strategy::Blt(Blt::new(&[0.3, 0.1], &[0.6, 0.95]).unwrap());
    let cyclic = Schedule::Sampling(Sampling::Cyclic { dataset_size: 5000, num_batches: 50 });
    let larger = [
        (Strategy::Identity, 1000, Schedule::Participation(Participation::Full)),
        (blt.clone(), 3000, cyclic.clone()),
        (blt, 500, Schedule::Participation(Participation::MinSep { min_sep: 40, max_participations: 3 })),
        (Strategy::banded_square_root(12).unwrap(), 400, cyclic.clone()),
        (
            Strategy::square_root(Workload::Prefix).unwrap(),
            300,
            Schedule::Participation(Participation::Single),
        ),
        (Strategy::banded_inverse_square_root(5).unwrap(), 600, cyclic.clone()),
        (Strategy::Tree(Estimator::Streaming), 96, cyclic),
    ];
    for (strategy, steps, schedule) in larger {
        let terms =
            Terms { schedule, adjacency: Adjacency::ZeroOut, unit: PrivacyUnit::User, clip_norm: 0.5 };
        let goal = Goal::NoiseMultiplier { noise_multiplier: 1.5, delta: 1e-6 };
        let strategy = Factorization::new(strategy, steps).unwrap();
        plans.push(calibrate(&strategy, &terms, &Workload::Prefix, &goal).unwrap());
    }
    plans.iter().map(|plan| serde_json::from_str(&plan.to_json()).unwrap()).collect()
}

/// The pointer of a random place: a leaf, or a list or object on the way there.
fn place(value: &Value, random: &mut Random, lists: bool) -> String {
    let mut path = String::new();
    let mut last_list = None;
    let mut value = value;
    loop {
        value = match value {
            Value::Object(map) if !map.is_empty() => {
                let (key, value) = map.iter().nth(random.below(map.len())).unwrap();
                path += &format!("/{key}");
                value
            }
            Value::Array(list) if !list.is_empty() => {
                last_list = Some(path.clone());
                let at = random.below(list.len());
                path += &format!("/{at}");
                &list[at]
            }
            _ => break,
        };
    }
    if lists { last_list.unwrap_or(path) } else { path }
}

fn number(old: f64, random: &mut Random) -> Value {
    let sign = if random.once_in(2) { 1.0 } else { -1.0 };
    let new = match random.below(8) {
        0..=2 => old * (1.0 + sign * random.power(-12.0, -0.5)),
        3 => old * random.power(-300.0, 300.0),
        4 => old * random.power(-3.0, 3.0),
        5 => -old,
        6 => 0.0,
        _ => old + sign * random.power(-9.0, 3.0),
    };
    if new.is_finite() { new.into() } else { 1e300.into() }
}

fn whole(old: u64, random: &mut Random) -> Value {
    match random.below(6) {
        0 => old.saturating_add(1 + random.below(3) as u64),
        1 => old.saturating_sub(1),
        2 => old.saturating_mul(1 << random.below(40)),
        3 => 1 << random.below(41),
        4 => random.below(70) as u64,
        _ => *random.pick(&[0, 1, 2, u64::MAX, 1 << 40, (1 << 40) + 1, 1 << 20, 1 << 30]),
    }
    .into()
}

const WORDS: [&str; 22] = [
    "exact",
    "upper_bound",
    "gaussian",
    "amplified",
    "zero-out",
    "replace-one",
    "example",
    "user",
    "single",
    "full",
    "prefix",
    "identity",
    "blt:4",
    "step",
    "tree_node",
    "sampler",
    "blt",
    "ring",
    "regenerate",
    "poisson",
    "cyclic",
    "",
];

fn edit(plan: &mut Value, bases: &[Value], random: &mut Random) {
    let other = random.pick(bases);
    let body = &mut plan["plan"];
    match random.below(17) {
        0..=4 => {
            let path = place(body, random, false);
            let Some(value) = body.pointer_mut(&path) else { return };
            *value = match &*value {
                Value::Number(old) if old.is_u64() => whole(old.as_u64().unwrap(), random),
                Value::Number(old) => number(old.as_f64().unwrap(), random),
                Value::String(_) => (*random.pick(&WORDS)).into(),
                Value::Bool(flag) => (!flag).into(),
                _ => number(1.0, random),
            };
        }
        5 => {
            let path = place(body, random, false);
            if let (Some(value), Some(from)) = (body.pointer_mut(&path), other["plan"].pointer(&path)) {
                *value = from.clone();
            }
        }
        6 => {
            let path = place(body, random, true);
            if let Some(Value::Array(list)) = body.pointer_mut(&path)
                && !list.is_empty()
            {
                let at = random.below(list.len());
                match random.below(4) {
                    0 => drop(list.remove(at)),
                    1 => list.truncate(at),
                    2 => list.insert(at, list[at].clone()),
                    _ => list.extend(list.clone()),
                }
            }
        }
        7 => body["steps"] = whole(body["steps"].as_u64().unwrap_or(1), random),
        8 => {
            let n = body["steps"].as_u64().unwrap_or(1).clamp(1, 64) as usize;
            let sampling = serde_json::to_value(small::sampling(random, n)).unwrap();
            match body {
                Value::Object(map) if random.once_in(3) => drop(map.remove("sampling")),
                _ => body["sampling"] = sampling,
            }
        }
        9 => body["form"] = other["plan"]["form"].clone(),
        10 => body["form"]["kernel"] = other["plan"]["form"]["kernel"].clone(),
        11 => {
            let n = body["steps"].as_u64().unwrap_or(1).clamp(1, 64) as usize;
            body["certificate"]["participation"] =
                serde_json::to_value(small::participation(random, n)).unwrap();
        }
        12 => body["certificate"]["claim"]["delta"] = small::delta(random).into(),
        13 => body["form"]["restart_every"] = whole(4, random),
        14 => {
            let n = body["steps"].as_u64().unwrap_or(1).min(100);
            body["form"]["output_scale"] =
                (0..if random.once_in(2) { 1 } else { n }).map(|_| number(1.0, random)).collect();
        }
        15 => {
            // Other numbers describe the same noise.
            let factor = random.power(-300.0, 300.0);
            let scales = body["form"]["output_scale"].as_array().cloned().unwrap_or_else(|| vec![1.into()]);
            let scaled = scales.iter().map(|scale| scale.as_f64().unwrap_or(1.0) * factor);
            body["form"]["output_scale"] = scaled.collect();
            body["stddev"] = (body["stddev"].as_f64().unwrap_or(1.0) / factor).into();
        }
        _ => body["stddev"] = number(body["stddev"].as_f64().unwrap_or(1.0), random),
    }
}

/// Makes some of the claim's numbers a little better than they are, and keeps related numbers consistent.
fn flatter(plan: &mut Value, random: &mut Random) {
    let share = random.power(-12.0, -4.0);
    let claim = &mut plan["plan"]["certificate"]["claim"];
    let mut scale = |name: &str, factor: f64| {
        if let Some(old) = claim[name].as_f64() {
            claim[name] = (old * factor).into();
        }
    };
    match random.below(7) {
        0 => scale("epsilon", 1.0 - share),
        1 => scale("delta", 1.0 - share),
        2 => scale("tail_delta", 1.0 - share),
        3 => {
            scale("gdp_mu", 1.0 - share);
            scale("noise_multiplier", 1.0 / (1.0 - share));
        }
        4 => {
            scale("gdp_mu", 1.0 - share);
            scale("noise_multiplier", 1.0 / (1.0 - share));
            scale("sensitivity", 1.0 - share);
            scale("epsilon", 1.0 - share);
        }
        5 => {
            if let Some(old) = claim["amplified"]["epsilon"].as_f64() {
                claim["amplified"]["epsilon"] = (old * (1.0 - share)).into();
                claim["epsilon"] = (old * (1.0 - share)).into();
            }
        }
        _ => plan["plan"]["stddev"] = (plan["plan"]["stddev"].as_f64().unwrap_or(1.0) * (1.0 - share)).into(),
    }
}

/// The plan with the fingerprint of its content, or the reason why there is none.
fn sealed(plan: &Value) -> Result<(String, Plan), String> {
    let text = plan.to_string();
    let message = match Plan::from_json(&text) {
        Ok(plan) => return Ok((text, plan)),
        Err(error) => error.to_string(),
    };
    let seal = message.split("its content has ").nth(1).and_then(|rest| rest.split(':').next());
    let Some(seal) = seal else { return Err(message) };
    let mut plan = plan.clone();
    plan["fingerprint"] = seal.into();
    let text = plan.to_string();
    let read = Plan::from_json(&text).map_err(|error| error.to_string())?;
    Ok((text, read))
}

/// A certificate that fits the rest of the plan, as anyone can compute it.
fn refitted(plan: &Value) -> Option<Value> {
    let stated: Certificate = serde_json::from_value(plan["plan"]["certificate"].clone()).ok()?;
    let mut bare = plan.clone();
    bare["plan"].as_object_mut()?.remove("certificate");
    let (_, read) = sealed(&bare).ok()?;
    let fresh = certificate(&read, &stated.terms(&read), &stated.workload, stated.claim.delta).ok()?;
    bare["plan"]["certificate"] = serde_json::to_value(fresh).ok()?;
    Some(bare)
}

#[derive(Default)]
struct Counts {
    edits: usize,
    refused_at_load: usize,
    refused_by_verify: usize,
    accepted: usize,
    checked: usize,
    seconds: f64,
    slowest: usize,
    bytes: usize,
    largest: usize,
    reasons: BTreeMap<String, usize>,
    violations: Vec<String>,
}

/// The outcome of an edit.
enum End {
    AtLoad(String),
    ByVerify(String),
    Accepted { checked: bool, violation: Option<String> },
}

/// The edited plan with a given number.
fn edited(number: usize, bases: &[Value], random: &mut Random) -> Value {
    let mut plan = bases[number % bases.len()].clone();
    for _ in 0..1 + random.below(3) {
        edit(&mut plan, bases, random);
    }
    plan
}

/// Reads a plan as a front end would, and compares what it accepts with the truth.
fn read(plan: &Value, random: &mut Random) -> End {
    let plan = match sealed(plan) {
        Ok((_, plan)) => plan,
        Err(message) => return End::AtLoad(message),
    };
    if let Err(error) = verify(&plan) {
        return End::ByVerify(error.to_string());
    }
    let stated = Certificate::of(&plan).expect("verified");
    let effort = if random.once_in(20) { Effort::Composed } else { Effort::Usual };
    if plan.num_steps() <= BRUTE_FORCE {
        return End::Accepted { checked: true, violation: check(&plan, &stated, effort).err() };
    }
    let fresh = certificate(&plan, &stated.terms(&plan), &stated.workload, stated.claim.delta);
    let fresh = fresh.expect("verified").claim;
    let claim = &stated.claim;
    let holds = claim.epsilon >= fresh.epsilon * (1.0 - 1e-7) && claim.gdp_mu >= fresh.gdp_mu * (1.0 - 1e-10);
    let violation = (!holds).then(|| format!("{claim:?}, but a new one is {fresh:?}"));
    End::Accepted { checked: false, violation }
}

fn examine(number: usize, bases: &[Value], file: &std::path::Path, counts: &Mutex<Counts>) {
    let mut random = Random(number as u64 + 1);
    let mut plan = edited(number, bases, &mut random);
    std::fs::write(file, plan.to_string()).unwrap();
    PEAK.store(CURRENT.load(Ordering::Relaxed), Ordering::Relaxed);
    let start = Instant::now();
    let mut made = false;
    let end = catch_unwind(AssertUnwindSafe(|| {
        if random.below(3) > 0
            && let Some(fitting) = refitted(&plan)
        {
            plan = fitting;
            if random.once_in(2) {
                flatter(&mut plan, &mut random);
            }
            std::fs::write(file, plan.to_string()).unwrap();
        }
        made = true;
        read(&plan, &mut random)
    }));
    let (seconds, bytes) = (start.elapsed().as_secs_f64(), PEAK.load(Ordering::Relaxed));
    let mut counts = counts.lock().unwrap();
    counts.edits += 1;
    if seconds > counts.seconds {
        (counts.seconds, counts.slowest) = (seconds, number);
    }
    if bytes > counts.bytes {
        (counts.bytes, counts.largest) = (bytes, number);
    }
    let mut violation = None;
    match end {
        Err(_) => violation = Some(format!("panics, {}", if made { "read" } else { "certified" })),
        Ok(End::AtLoad(message)) => {
            counts.refused_at_load += 1;
            *counts.reasons.entry(kind(&message)).or_default() += 1;
        }
        Ok(End::ByVerify(message)) => {
            counts.refused_by_verify += 1;
            if message.contains("internal error") {
                violation = Some(message.clone());
            }
            *counts.reasons.entry(kind(&message)).or_default() += 1;
        }
        Ok(End::Accepted { checked, violation: found }) => {
            counts.accepted += 1;
            counts.checked += usize::from(checked);
            violation = found;
        }
    }
    if let Some(message) = violation {
        let kept = file.with_file_name(format!("resealed-violation-{number}.json"));
        std::fs::write(&kept, plan.to_string()).unwrap();
        counts.violations.push(format!("edit {number}, in {}: {message}", kept.display()));
    }
}

/// The kind of a message: its text without numbers.
fn kind(message: &str) -> String {
    let text: String = message.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    text.split(['0', ':']).next().unwrap_or_default().chars().take(60).collect()
}

#[test]
fn whatever_is_accepted_is_true() {
    let text = std::env::var("CORRNOISE_RESEALED_PLANS").ok();
    let wanted = text.map_or(SAMPLE, |text| text.parse().expect("a number of edits"));
    let first: usize =
        std::env::var("CORRNOISE_RESEALED_FIRST").ok().map_or(0, |text| text.parse().expect("a number"));
    let bases = bases();
    assert!(bases.len() > 40, "{}", bases.len());
    let counts = Mutex::new(Counts::default());
    let (next, ended) = (AtomicUsize::new(first), AtomicBool::new(false));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let begun = Mutex::new(vec![None::<Instant>; threads]);
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (bases, counts, next, begun) = (&bases, &counts, &next, &begun);
                scope.spawn(move || {
                    let file = folder.join(format!("resealed-{thread}.json"));
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= first + wanted {
                            return;
                        }
                        begun.lock().unwrap()[thread] = Some(Instant::now());
                        examine(number, bases, &file, counts);
                        begun.lock().unwrap()[thread] = None;
                    }
                })
            })
            .collect();
        // A reader that does not end is not waited for.
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(20));
                for (thread, start) in begun.lock().unwrap().iter().enumerate() {
                    if start.is_some_and(|start| start.elapsed() > HOPELESS) {
                        let counts = counts.lock().unwrap();
                        println!(
                            "{}/resealed-{thread}.json does not end; {} edits before, {} accepted, {} checked, {:.2} s, {:.1} MB, {:?}",
                            folder.display(),
                            counts.edits,
                            counts.accepted,
                            counts.checked,
                            counts.seconds,
                            counts.bytes as f64 / 1e6,
                            counts.violations
                        );
                        std::process::exit(1);
                    }
                }
            }
        });
        for worker in workers {
            worker.join().unwrap();
        }
        ended.store(true, Ordering::Relaxed);
    });
    let counts = counts.into_inner().unwrap();
    println!(
        "{} edits: {} refused at loading, {} by verify, {} accepted ({} against brute force); the slowest took {:.2} s (edit {}), the \
         largest {:.1} MB (edit {})",
        counts.edits,
        counts.refused_at_load,
        counts.refused_by_verify,
        counts.accepted,
        counts.checked,
        counts.seconds,
        counts.slowest,
        counts.bytes as f64 / 1e6,
        counts.largest
    );
    for (reason, count) in &counts.reasons {
        println!("{count:8}  {reason}");
    }
    for violation in &counts.violations {
        println!("{violation}");
    }
    assert!(counts.violations.is_empty(), "{} violations", counts.violations.len());
    assert!(counts.seconds < MOST_SECONDS && counts.bytes < MOST_BYTES);
    assert!(counts.checked * 10 > counts.edits, "{} of {}", counts.checked, counts.edits);
}

/// Sealing works: a plan that is accepted unedited stays accepted, and a claim with less noise behind it is not.
#[test]
fn the_seal_is_no_obstacle() {
    let bases = bases();
    let mut random = Random(5);
    for base in &bases {
        let mut plan = base.clone();
        assert!(matches!(read(&plan, &mut random), End::Accepted { violation: None, .. }));
        plan["plan"]["rounds"] = 20.into();
        assert!(matches!(read(&plan, &mut random), End::Accepted { violation: None, .. }));
        let noise = &mut plan["plan"];
        noise["stddev"] = (0.5 * noise["stddev"].as_f64().unwrap()).into();
        noise["grid_exponent"] = (noise["grid_exponent"].as_i64().unwrap() - 1).into();
        let fits = &mut noise["certificate"]["claim"];
        for (key, factor) in [("noise_multiplier", 0.5), ("gdp_mu", 2.0)] {
            fits[key] = (factor * fits[key].as_f64().unwrap()).into();
        }
        assert!(matches!(read(&plan, &mut random), End::ByVerify(_)), "{plan}");
        let empty = json!({ "corrnoise_plan": 2, "fingerprint": "", "plan": Value::Object(Map::new()) });
        assert!(matches!(read(&empty, &mut random), End::AtLoad(_)));
    }
}
