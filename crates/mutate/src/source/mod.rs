//! Mutations of the sources: one token of `kernels/*.cu` or `*.cuh` is changed, the pinned compiler makes PTX of it, and the PTX is
//! judged like any other, with gradients of all three types.

mod compiler;
mod excused;
mod tokens;

use crate::draw::{Filter, Random};
use crate::judge::Verdict;
use crate::ptx::{Module, kernels_folder};
use crate::report::{Outcome, Report};
use crate::run::{Options, Suite, check_library};
use compiler::Compiler;
use corrnoise_cuda_suite::compare::Both;
use half::{bf16, f16};
use std::collections::HashMap;
use tokens::Change;

/// The cases of one module, made when it is first judged.
struct Suites {
    f32: Suite<f32>,
    bf16: Suite<bf16>,
    f16: Suite<f16>,
}

impl Suites {
    fn new(module: &str) -> Result<Suites, String> {
        let failed = |error: corrnoise::Error| format!("{module}: {error}");
        let f32 = Suite::new(module).map_err(failed)?;
        let bf16 = Suite::new(module).map_err(failed)?;
        Ok(Suites { f32, bf16, f16: Suite::new(module).map_err(failed)? })
    }

    /// Judges a text by the small cases of all types first, and runs the large ones only on survivors.
    fn judge(&self, module: &Module, text: &str) -> Verdict {
        fn one<E: Both>(suite: &Suite<E>, module: &Module, text: &str, deep: bool) -> Verdict {
            suite.judge(0, &module.text, text, deep)
        }
        for deep in [false, true] {
            let types: [&dyn Fn() -> Verdict; 3] =
                [&|| one(&self.f32, module, text, deep), &|| one(&self.bf16, module, text, deep), &|| {
                    one(&self.f16, module, text, deep)
                }];
            let verdict = types.iter().map(|judge| judge()).find(|verdict| *verdict != Verdict::Survived);
            if let Some(verdict) = verdict {
                return verdict;
            }
        }
        Verdict::Survived
    }
}

/// Whether a module is compiled from a source file.
fn is_made_from(module: &str, file: &str) -> bool {
    match file.strip_suffix(".cu") {
        Some(stem) => module.starts_with(stem),
        None => true,
    }
}

/// Judges as many mutants of the sources as the options ask for; operators are kinds of tokens here.
pub fn run(modules: &[Module], options: &Options) -> Result<Report, String> {
    check_library()?;
    let files = tokens::sources(&kernels_folder())?;
    let filter: &Filter = &options.filter;
    let changes: Vec<Change> = files.iter().flat_map(tokens::changes).collect();
    let mut compiler = Compiler::start()?;
    let mut random = Random::new(options.seed);
    let mut suites: HashMap<String, Suites> = HashMap::new();
    let mut report = Report::default();
    let mut tries = 0;
    while report.outcomes.len() < options.count {
        tries += 1;
        if tries > 20 * options.count {
            return Err("nothing to mutate: no module has such a name".into());
        }
        // Files are drawn evenly: those of the forms are short, but matter as much as the cipher.
        let file = &files[random.below(files.len())];
        let own: Vec<&Change> = changes.iter().filter(|change| change.file == file.name).collect();
        let made: Vec<&Module> =
            modules.iter().filter(|m| is_made_from(&m.name, &file.name) && filter.module(&m.name)).collect();
        if own.is_empty() || made.is_empty() {
            continue;
        }
        let (change, module) = (own[random.below(own.len())], made[random.below(made.len())]);
        let Some(text) = compiler.compile(&module.name, &files, change)? else {
            report.refused += 1;
            continue;
        };
        // The compiled text is unchanged, so this is not a mutant.
        if text == module.text {
            report.refused += 1;
            continue;
        }
        if !suites.contains_key(&module.name) {
            suites.insert(module.name.clone(), Suites::new(&module.name)?);
        }
        let verdict = suites[&module.name].judge(module, &text);
        if options.verbose {
            println!("{} {} {change}: {verdict:?}", module.name, change.kind);
        }
        if matches!(verdict, Verdict::Refused(_)) {
            report.refused += 1;
            continue;
        }
        let excuse = excused::excuse(change).filter(|_| verdict == Verdict::Survived);
        let (kernel, operator) = (change.file.clone(), change.kind.to_owned());
        let change = change.to_string();
        report.outcomes.push(Outcome {
            module: module.name.clone(),
            kernel,
            operator,
            change,
            verdict,
            excuse,
        });
    }
    Ok(report)
}
