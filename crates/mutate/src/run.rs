//! Runs a mutation test: draws mutants, judges them on several devices of the stand-in in parallel, and reports.

use crate::draw::{Draw, Filter, Mutant};
use crate::excused::{Excuse, Kind, excuse};
use crate::judge::{Setting, Verdict, judge, leaping};
use crate::ptx::Module;
use crate::report::{Outcome, Report};
use crate::wide;
use corrnoise::{Dtype, Element, with_element};
use corrnoise_cuda_suite::cases::{self, Expected};
use std::sync::{Mutex, OnceLock};
use std::time::Instant;

/// The number of devices of the stand-in that can run the kernels.
const DEVICES: usize = 7;

/// The options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The seed, which fixes the sequence of mutants.
    pub seed: u64,
    /// The number of mutants to judge.
    pub count: usize,
    /// The filter that limits the mutants.
    pub filter: Filter,
    /// The number of mutants that are judged in parallel.
    pub jobs: usize,
    /// Whether each verdict is printed as soon as it is known.
    pub verbose: bool,
    /// Whether the large cases are spared mutants that a class calls equivalent.
    pub trust: bool,
}

/// The cases of one module and gradient type with the CPU's results.
pub struct Suite<E> {
    module: String,
    small: Vec<Expected<E>>,
    /// The case for an `advance` that counts 2³² steps at a time.
    leaping: [Expected<E>; 1],
    /// The large cases, made when a mutant first survives the small ones.
    deep: OnceLock<Vec<Expected<E>>>,
    /// Set once the unchanged module has passed the wide launches.
    wide: OnceLock<()>,
}

impl<E: Element> Suite<E> {
    /// Runs the small cases of a module on the CPU.
    pub fn new(module: &str) -> corrnoise::Result<Suite<E>> {
        let is_f16 = E::DTYPE == Dtype::F16;
        let small = cases::fast(module, is_f16)?.into_iter().map(Expected::new);
        let small = small.collect::<corrnoise::Result<_>>()?;
        let leaping = [Expected::new(cases::leaping(module)?)?];
        Ok(Suite { module: module.to_owned(), small, leaping, deep: OnceLock::new(), wide: OnceLock::new() })
    }

    /// Fails unless the unchanged module passes its cases, and unless they load it: else every mutant of it would survive.
    pub fn check(&self, device: usize, module: &Module, unchanged: &str) -> Result<(), String> {
        match self.judge(device, &module.text, unchanged, false) {
            Verdict::Survived => {}
            verdict => return Err(format!("{}, unchanged: {verdict:?}", module.name)),
        }
        match judge(device, &module.text, "not PTX", &self.small, Setting::ordinary(&self.module)) {
            Verdict::Refused(_) => Ok(()),
            verdict => Err(format!("{} is not loaded by its cases: {verdict:?}", module.name)),
        }
    }

    /// Judges PTX by the small cases, and, if it survives and `deep` is set, by the large ones.
    pub fn judge(&self, device: usize, committed: &str, mutated: &str, deep: bool) -> Verdict {
        let ordinary = Setting::ordinary(&self.module);
        let mut verdict = judge(device, committed, mutated, &self.small, ordinary);
        if let Some(leaps) = leaping(mutated).filter(|_| verdict == Verdict::Survived) {
            verdict = judge(device, committed, &leaps, &self.leaping, Setting::leaping(&self.module));
        }
        if verdict != Verdict::Survived || !deep {
            return verdict;
        }
        // Unwritten registers are also zero once: a number that is lost could be taken for one that is not wide.
        let zero = Setting { unwritten: [0; 2], ..ordinary };
        let wide = |text: &str| {
            let judge = |setting| wide::judge::<E>(device, &self.module, committed, text, setting);
            let first = judge(ordinary);
            if first == Verdict::Survived { judge(zero) } else { first }
        };
        self.wide
            .get_or_init(|| assert_eq!(wide(committed), Verdict::Survived, "{}, unchanged", self.module));
        verdict = wide(mutated);
        if verdict != Verdict::Survived {
            return verdict;
        }
        let make = || {
            let cases =
                cases::deep(&self.module).and_then(|cases| cases.into_iter().map(Expected::new).collect());
            let cases: Vec<_> = cases.unwrap_or_else(|error| panic!("{}: {error}", self.module));
            // A case that the kernel itself fails would count as one that kills.
            let verdict = judge(device, committed, committed, &cases, ordinary);
            assert_eq!(verdict, Verdict::Survived, "{}, unchanged", self.module);
            cases
        };
        judge(device, committed, mutated, self.deep.get_or_init(make), ordinary)
    }
}

/// Judges as many mutants as the options ask for. Fails if an unchanged module is not judged equal to itself.
pub fn run(modules: &[Module], options: &Options) -> Result<Report, String> {
    check_library()?;
    let mut draw = Draw::new(modules, &options.filter, options.seed);
    let mut report = Report::default();
    let mut wanted = options.count;
    // Variants that are refused are replaced by the next ones of the sequence.
    while wanted > 0 {
        let drawn: Vec<Mutant> = draw.by_ref().take(wanted).collect();
        if drawn.is_empty() {
            return Err("nothing to mutate: no kernel or operator has such a name".into());
        }
        for (m, module) in modules.iter().enumerate() {
            for dtype in Dtype::ALL {
                let kernel = |mutant: &&Mutant| module.kernels[mutant.kernel].element() == dtype.name();
                let group: Vec<&Mutant> =
                    drawn.iter().filter(|mutant| mutant.module == m).filter(kernel).collect();
                if !group.is_empty() {
                    with_element!(dtype, E => judge_group::<E>(module, &group, options, &mut report)?);
                }
            }
        }
        wanted = options.count.saturating_sub(report.outcomes.len());
    }
    Ok(report)
}

/// Refuses a stand-in that is not this build's: cargo's library path leads to `target/debug` first, where `cargo build` leaves a
/// copy that other commands do not renew.
pub(crate) fn check_library() -> Result<(), String> {
    let deps = std::env::current_exe().ok().and_then(|exe| {
        let folder = exe.parent()?;
        Some(if folder.ends_with("deps") { folder.to_owned() } else { folder.join("deps") })
    });
    let age = |path: &std::path::Path| path.metadata().and_then(|data| data.modified()).ok();
    if let Some(deps) = deps {
        let name = format!("{}cuda{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
        let (copy, own) = (deps.join("..").join(&name), deps.join(&name));
        if age(&copy).is_some_and(|copied| age(&own).is_some_and(|built| copied < built)) {
            return Err(format!(
                "{} is found first and is older than {}: delete it",
                copy.display(),
                own.display()
            ));
        }
    }
    if cuda::control::is_stand_in() {
        Ok(())
    } else {
        Err("another libcuda was found before the stand-in's".into())
    }
}

fn judge_group<E: Element>(
    module: &Module,
    group: &[&Mutant],
    options: &Options,
    report: &mut Report,
) -> Result<(), String> {
    let suite: Suite<E> = Suite::new(&module.name).map_err(|error| format!("{}: {error}", module.name))?;
    let kernel = &module.kernels[group[0].kernel];
    let unchanged = module.with_line(kernel, usize::MAX, "");
    suite.check(0, module, &unchanged).map_err(|error| format!("{}: {error}", kernel.element()))?;
    let next = Mutex::new(group.iter());
    let outcomes = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for device in 0..options.jobs.clamp(1, DEVICES) {
            let (next, outcomes, suite) = (&next, &outcomes, &suite);
            scope.spawn(move || {
                loop {
                    let Some(mutant) = next.lock().ok().and_then(|mut next| next.next()) else { return };
                    let outcome = judge_one(device, module, mutant, suite, options);
                    if let Ok(mut outcomes) = outcomes.lock() {
                        outcomes.push((mutant.line, outcome));
                    }
                }
            });
        }
    });
    let mut outcomes = outcomes.into_inner().map_err(|_| "a judge panicked")?;
    outcomes.sort_by_key(|(line, _)| *line);
    for (_, outcome) in outcomes {
        match outcome.verdict {
            Verdict::Refused(_) => report.refused += 1,
            _ => report.outcomes.push(outcome),
        }
    }
    Ok(())
}

fn judge_one<E: Element>(
    device: usize,
    module: &Module,
    mutant: &Mutant,
    suite: &Suite<E>,
    options: &Options,
) -> Outcome {
    let start = Instant::now();
    let kernel = &module.kernels[mutant.kernel];
    let text = module.with_line(kernel, mutant.line, &mutant.after);
    let excuse = excuse(module, kernel, mutant);
    // Unless it is trusted, the large cases run whatever the class says: they are what shows that it says too much.
    let trusted = options.trust && excuse.is_some_and(|excuse| excuse.kind == Kind::Equivalent);
    let verdict = suite.judge(device, &module.text, &text, !trusted);
    let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let after = if mutant.after.is_empty() { "(nothing)".to_owned() } else { plain(&mutant.after) };
    let change = format!("line {}: {} -> {after}", mutant.line + 1, plain(&mutant.before));
    let name = kernel.name.strip_prefix("noise_").unwrap_or(&kernel.name).to_owned();
    if options.verbose {
        let seconds = start.elapsed().as_secs_f64();
        println!("{} {name} {}: {change}: {verdict:?} ({seconds:.2} s)", module.name, mutant.operator.name());
        if let Some(Excuse { kind, reason }) = excuse {
            println!("    {}: {reason}", kind.name());
        }
    }
    Outcome {
        module: module.name.clone(),
        kernel: name,
        operator: mutant.operator.name().into(),
        change,
        verdict,
        excuse,
    }
}
