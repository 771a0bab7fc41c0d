//! Mutations of the sources: one token of `kernels/*.cu` or `*.cuh` is changed, the pinned compiler makes PTX of it, and the PTX is
//! judged like any other, with gradients of every type.

mod compiler;
mod excused;
mod tokens;

use crate::draw::{Filter, Random};
use crate::judge::Verdict;
use crate::ptx::{Module, kernels_folder};
use crate::report::{Outcome, Report};
use crate::run::{Options, Suite, check_library};
use compiler::Compiler;
use corrnoise::with_element;
use std::collections::HashMap;
use tokens::Change;

/// The judge of a module's changed text by the cases of one gradient type; by the large ones, too, if the last argument says so.
type Judge = Box<dyn Fn(&Module, &str, bool) -> Verdict>;

/// The cases of one module with gradients of every type, made when it is first judged.
struct Suites(Vec<Judge>);

impl Suites {
    fn new(module: &Module) -> Result<Suites, String> {
        let failed = |error| format!("{}: {error}", module.name);
        let judge = |dtype| -> Result<Judge, String> {
            with_element!(dtype, E => {
                let suite: Suite<E> = Suite::new(&module.name).map_err(failed)?;
                suite.check(0, module, &module.text)?;
                Ok(Box::new(move |module: &Module, text: &str, deep| suite.judge(0, &module.text, text, deep)))
            })
        };
        Ok(Suites(module.dtypes().into_iter().map(judge).collect::<Result<_, _>>()?))
    }

    /// Judges a text by the small cases of all types first, and runs the large ones only on survivors.
    fn judge(&self, module: &Module, text: &str) -> Verdict {
        for deep in [false, true] {
            let mut verdicts = self.0.iter().map(|judge| judge(module, text, deep));
            if let Some(verdict) = verdicts.find(|verdict| *verdict != Verdict::Survived) {
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
        None if file == "turn.cuh" => module.starts_with("make_") || module.starts_with("add"),
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
            suites.insert(module.name.clone(), Suites::new(module)?);
        }
        let verdict = suites[&module.name].judge(module, &text);
        if options.verbose {
            println!("{} {} {change}: {verdict:?}", module.name, change.kind);
        }
        if matches!(verdict, Verdict::Refused(_)) {
            report.refused += 1;
            continue;
        }
        let excuse = excused::excuse(change);
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
