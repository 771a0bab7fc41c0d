//! The coverage of the small cases: which instructions they execute, and which branches they take both ways.

use crate::draw::Filter;
use crate::judge::Verdict;
use crate::ptx::{Kernel, Module};
use crate::run::Suite;
use corrnoise::{Element, with_element};
use cuda::control::{self, Line};
use std::fmt;

/// An instruction that no small case executes, or a branch that they take one way only.
#[derive(Clone, Debug)]
pub struct Unreached {
    /// The name of the module.
    pub module: String,
    /// The name of the kernel.
    pub kernel: String,
    /// The line in the module, counted from 0.
    pub line: usize,
    /// The text of the instruction.
    pub text: String,
    /// The outcome that no case reaches, in words.
    pub what: &'static str,
}

impl fmt::Display for Unreached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.text.split_whitespace().collect::<Vec<_>>().join(" ");
        write!(f, "{} {}, line {}: {text}: {}", self.module, self.kernel, self.line + 1, self.what)
    }
}

/// Runs the small cases on the unchanged modules, on device 0.
pub fn unreached(modules: &[Module], filter: &Filter) -> Result<Vec<Unreached>, String> {
    let mut out = Vec::new();
    for module in modules.iter().filter(|module| filter.module(&module.name)) {
        let run = |dtype| with_element!(dtype, E => lines::<E>(module));
        let lines = module.dtypes().into_iter().map(run).collect::<Result<Vec<_>, _>>()?;
        for kernel in module.kernels.iter().filter(|kernel| filter.kernel(&kernel.name)) {
            out.extend(unreached_of(module, kernel, &lines));
        }
    }
    Ok(out)
}

/// The execution of each line by the small cases, with gradients of one type.
fn lines<E: Element>(module: &Module) -> Result<Vec<Line>, String> {
    let failed = |what: String| format!("{}, unchanged: {what}", module.name);
    let suite: Suite<E> = Suite::new(&module.name).map_err(|error| failed(error.to_string()))?;
    control::watch_lines(0);
    let verdict = suite.judge(0, &module.text, &("\n".repeat(OTHERS) + &module.text), false);
    let lines = control::watched_lines(0, OTHERS + module.text.lines().count() + 1).split_off(OTHERS);
    if verdict == Verdict::Survived { Ok(lines) } else { Err(failed(format!("{verdict:?}"))) }
}

/// The number of empty lines put before a module. The stand-in does not tell modules apart, and no other module has as many lines.
const OTHERS: usize = 1 << 15;

fn unreached_of(module: &Module, kernel: &Kernel, runs: &[Vec<Line>]) -> Vec<Unreached> {
    let mut out = Vec::new();
    for instruction in &kernel.instructions {
        // The stand-in counts lines from 1.
        let seen = |field: fn(&Line) -> bool| runs.iter().any(|lines| field(&lines[instruction.line + 1]));
        let what = match (seen(|line| line.ran), seen(|line| line.passed)) {
            (false, false) => "never executed",
            (false, true) => "its guard is never true",
            (true, false) if !instruction.guard.is_empty() => "its guard is never false",
            _ => continue,
        };
        let (module, kernel) = (module.name.clone(), kernel.name.clone());
        out.push(Unreached { module, kernel, line: instruction.line, text: instruction.text(), what });
    }
    out
}
