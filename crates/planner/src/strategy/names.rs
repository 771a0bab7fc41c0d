//! Strategies by name: what `blt:4` stands for, in the command line and in other languages.

use crate::error::{Error, Result};
use crate::factorization::{Factorization, MAX_RING_BANDS};
use crate::names::{fraction, listed, split, unknown, whole};
use crate::optimize::{self, Observer, Problem};
use crate::strategy::Strategy;
use crate::strategy::tree::Estimator;
use corrnoise_core::Form;
use corrnoise_core::form::Kernel;

/// A strategy as people name it. What it is made of depends on the problem: see [`StrategySpec::build`].
#[derive(Clone, Debug, PartialEq)]
pub enum StrategySpec {
    /// Independent noise on every gradient.
    Identity,
    /// Independent noise on every output: `C = A`.
    Workload,
    /// The square root of the workload.
    SquareRoot,
    /// The square root of the prefix sums, coefficient `t` times `(1 − ν)^t`.
    ToeplitzDamped(f64),
    /// The best Toeplitz `C`.
    ToeplitzOpt,
    /// The square root of the workload, cut to so many diagonals.
    BandedSquareRoot(usize),
    /// The best banded Toeplitz `C`.
    BandedOpt(usize),
    /// The best banded `C` with free rows.
    BandedFull(usize),
    /// The best BLT with so many buffers.
    Blt(usize),
    /// The best lower-triangular `C`.
    Dense,
    /// Binary tree, read by the nodes complete so far.
    Tree,
    /// Binary tree, read as a whole.
    TreeFull,
    /// The inverse square root of the workload, cut to so many diagonals.
    Bisr(usize),
    /// The best Toeplitz `C` whose inverse has so many diagonals.
    BandinvOpt(usize),
}

/// A strategy by name, or the best of all.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum StrategyChoice {
    /// All strategies are compared.
    #[default]
    Auto,
    /// This strategy alone is planned.
    One(StrategySpec),
}

/// Every strategy that has a name: how it is written, and what it is.
pub const STRATEGIES: [(&str, &str); 14] = [
    ("identity", "independent noise on every gradient"),
    ("workload", "independent noise on every output (C = A)"),
    ("toeplitz", "the square root of the workload, the best Toeplitz C for one participation and max loss"),
    ("toeplitz-damped:NU", "square root of the prefix sums, coefficient t times (1 - NU)^t"),
    ("toeplitz-opt", "the best Toeplitz C"),
    ("banded:B", "the square root of the workload, cut to B diagonals"),
    ("banded-opt:B", "the best banded Toeplitz C"),
    ("banded-full:B", "the best banded C with free rows"),
    ("blt:D", "the best buffered linear Toeplitz C with D buffers"),
    ("dense", "the best lower-triangular C"),
    ("tree", "binary tree, read by least squares over the nodes complete so far (streaming)"),
    ("tree-full", "binary tree, least squares over the whole tree"),
    ("bisr:B", "the inverse square root of the workload, cut to B diagonals"),
    ("bandinv-opt:B", "the best Toeplitz C whose inverse has B diagonals"),
];

/// Parses a strategy: `name` or `name:argument`.
///
/// ```
/// use corrnoise_planner::{StrategySpec, names};
/// assert_eq!(names::strategy("blt:4")?, StrategySpec::Blt(4));
/// assert!(names::strategy("blt").unwrap_err().to_string().contains("as in blt:4"));
/// # Ok::<(), corrnoise_planner::Error>(())
/// ```
pub fn strategy(text: &str) -> Result<StrategySpec> {
    known(text)?.ok_or_else(|| unknown("strategy", &listed(STRATEGIES.map(|(name, _)| name))))
}

/// `auto` or a strategy.
pub fn strategy_choice(text: &str) -> Result<StrategyChoice> {
    if text == "auto" {
        return Ok(StrategyChoice::Auto);
    }
    let missing =
        || unknown("strategy", &listed(std::iter::once("auto").chain(STRATEGIES.map(|(name, _)| name))));
    known(text)?.map(StrategyChoice::One).ok_or_else(missing)
}

/// The strategy of a name, if it is written as strategies print their names.
pub(crate) fn named(text: &str) -> Option<StrategySpec> {
    strategy(text).ok().filter(|strategy| strategy.to_string() == text)
}

/// None if nothing has this name.
fn known(text: &str) -> Result<Option<StrategySpec>> {
    let (name, argument) = split(text);
    let bands = |make: fn(usize) -> StrategySpec| Ok(make(whole(name, "B", argument)?));
    let plain = |spec: StrategySpec| match argument {
        None => Ok(spec),
        Some(argument) => Err(Error::Input(format!("{name} takes no argument, but {argument:?} follows it"))),
    };
    let spec = match name {
        "identity" => plain(StrategySpec::Identity),
        "workload" => plain(StrategySpec::Workload),
        "toeplitz" => plain(StrategySpec::SquareRoot),
        "toeplitz-damped" => Ok(StrategySpec::ToeplitzDamped(fraction(name, "NU", argument)?)),
        "toeplitz-opt" => plain(StrategySpec::ToeplitzOpt),
        "banded" => bands(StrategySpec::BandedSquareRoot),
        "banded-opt" => bands(StrategySpec::BandedOpt),
        "banded-full" => bands(StrategySpec::BandedFull),
        "blt" => Ok(StrategySpec::Blt(whole(name, "D", argument)?)),
        "dense" => plain(StrategySpec::Dense),
        "tree" => plain(StrategySpec::Tree),
        "tree-full" => plain(StrategySpec::TreeFull),
        "bisr" => bands(StrategySpec::Bisr),
        "bandinv-opt" => bands(StrategySpec::BandinvOpt),
        _ => return Ok(None),
    };
    spec.map(Some)
}

impl StrategySpec {
    /// The strategy for a problem; what is optimised reports to the observer.
    pub fn build(&self, problem: &Problem, observer: Observer<'_>) -> Result<Factorization> {
        let n = problem.num_steps;
        problem.participation.check(n)?;
        let root = |bands: usize| {
            check_bands(bands, n)?;
            Factorization::new(Strategy::square_root(problem.workload.clone())?, bands)
        };
        let strategy = match *self {
            StrategySpec::Identity => Strategy::Identity,
            StrategySpec::Workload => Strategy::Output(problem.workload.clone()),
            StrategySpec::SquareRoot => Strategy::square_root(problem.workload.clone())?,
            StrategySpec::ToeplitzDamped(damping) => Strategy::damped(damping)?,
            StrategySpec::BandedSquareRoot(bands) => {
                Strategy::toeplitz(root(bands)?.strategy_coefs()?.unwrap_or_default())?
            }
            StrategySpec::Bisr(bands) => {
                Strategy::banded_inverse(root(bands)?.noising_coefs()?.unwrap_or_default())?
            }
            StrategySpec::Tree => Strategy::Tree(Estimator::Streaming),
            StrategySpec::TreeFull => Strategy::Tree(Estimator::Full),
            StrategySpec::ToeplitzOpt
            | StrategySpec::BandedOpt(_)
            | StrategySpec::BandedFull(_)
            | StrategySpec::Blt(_)
            | StrategySpec::Dense
            | StrategySpec::BandinvOpt(_) => return self.optimized(problem, observer),
        };
        Factorization::new(strategy, n)
    }

    fn optimized(&self, problem: &Problem, observer: Observer<'_>) -> Result<Factorization> {
        let best = match *self {
            StrategySpec::ToeplitzOpt => optimize::toeplitz::full(problem, observer),
            StrategySpec::BandedOpt(bands) => optimize::toeplitz::banded(problem, bands, observer),
            StrategySpec::BandedFull(bands) => optimize::banded::optimize(problem, bands, observer),
            StrategySpec::Blt(buffers) => optimize::blt::optimize(problem, buffers, observer),
            StrategySpec::BandinvOpt(bands) => optimize::toeplitz::banded_inverse(problem, bands, observer),
            _ => optimize::dense::optimize(problem, observer),
        };
        Ok(best?.factorization)
    }
}

impl StrategySpec {
    /// Whether a strategy of this name can have been lowered to a form: its class fits, and it has no more bands or buffers than named.
    pub(crate) fn may_run_as(&self, form: &Form) -> bool {
        let toeplitz = |most: usize| match form.kernel() {
            Kernel::Regenerate(rows) => rows.toeplitz_weights().is_some_and(|weights| weights.len() <= most),
            _ => false,
        };
        let ring = |bands: usize| matches!(form.kernel(), Kernel::Ring(ring) if ring.num_slots() < bands);
        let buffers = match form.kernel() {
            Kernel::Blt(blt) => Some(blt.scale().len()),
            _ => None,
        };
        let (listed, by_step) = match form.kernel() {
            Kernel::Regenerate(rows) => (rows.listed_terms(0).is_some(), rows.toeplitz_weights().is_none()),
            _ => (false, false),
        };
        form.restart_every().is_none()
            && match *self {
                StrategySpec::Identity => buffers == Some(0),
                StrategySpec::Blt(most) => buffers.is_some_and(|buffers| buffers <= most),
                // A workload that is no Toeplitz matrix is written out.
                StrategySpec::Workload => toeplitz(usize::MAX) || by_step && !listed,
                StrategySpec::SquareRoot | StrategySpec::ToeplitzDamped(_) => toeplitz(usize::MAX),
                StrategySpec::ToeplitzOpt => ring(usize::MAX) || toeplitz(usize::MAX),
                StrategySpec::BandedSquareRoot(bands) | StrategySpec::BandedOpt(bands) => {
                    ring(bands) || bands > MAX_RING_BANDS && toeplitz(usize::MAX)
                }
                StrategySpec::BandedFull(bands) => ring(bands),
                StrategySpec::Bisr(bands) | StrategySpec::BandinvOpt(bands) => toeplitz(bands),
                StrategySpec::Tree => listed,
                StrategySpec::TreeFull => by_step && !listed,
                // The best matrix may turn out to be banded.
                StrategySpec::Dense => by_step && !listed || ring(usize::MAX),
            }
    }
}

fn check_bands(bands: usize, num_steps: usize) -> Result<()> {
    if bands <= num_steps {
        return Ok(());
    }
    Err(Error::parameter("number of bands", bands, format!("1 to {num_steps}, the number of steps")))
}

impl std::fmt::Display for StrategySpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StrategySpec::Identity => write!(f, "identity"),
            StrategySpec::Workload => write!(f, "workload"),
            StrategySpec::SquareRoot => write!(f, "toeplitz"),
            StrategySpec::ToeplitzDamped(nu) => write!(f, "toeplitz-damped:{nu}"),
            StrategySpec::ToeplitzOpt => write!(f, "toeplitz-opt"),
            StrategySpec::BandedSquareRoot(bands) => write!(f, "banded:{bands}"),
            StrategySpec::BandedOpt(bands) => write!(f, "banded-opt:{bands}"),
            StrategySpec::BandedFull(bands) => write!(f, "banded-full:{bands}"),
            StrategySpec::Blt(buffers) => write!(f, "blt:{buffers}"),
            StrategySpec::Dense => write!(f, "dense"),
            StrategySpec::Tree => write!(f, "tree"),
            StrategySpec::TreeFull => write!(f, "tree-full"),
            StrategySpec::Bisr(bands) => write!(f, "bisr:{bands}"),
            StrategySpec::BandinvOpt(bands) => write!(f, "bandinv-opt:{bands}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optimize::{Objective, unobserved};

    const NAMES: [&str; 14] = [
        "identity",
        "workload",
        "toeplitz",
        "toeplitz-damped:0.25",
        "toeplitz-opt",
        "banded:5",
        "banded-opt:3",
        "banded-full:7",
        "blt:2",
        "dense",
        "tree",
        "tree-full",
        "bisr:4",
        "bandinv-opt:6",
    ];

    #[test]
    fn names_are_what_they_were_parsed_from() {
        for name in NAMES {
            assert_eq!(strategy(name).unwrap().to_string(), name);
            assert_eq!(strategy_choice(name).unwrap(), StrategyChoice::One(strategy(name).unwrap()));
        }
        assert_eq!(strategy_choice("auto").unwrap(), StrategyChoice::Auto);
        let listed = STRATEGIES.map(|(name, _)| name.split(':').next().unwrap());
        assert_eq!(NAMES.map(|name| name.split(':').next().unwrap()), listed);
    }

    #[test]
    fn names_of_nothing_say_what_there_is() {
        let message = |text: &str| strategy_choice(text).unwrap_err().to_string();
        assert!(message("quadtree").contains("no such strategy; expected auto, identity, workload"));
        assert!(strategy("auto").unwrap_err().to_string().contains("expected identity"));
        assert_eq!(message("banded:0"), "B in banded:B is \"0\": expected a whole number from 1 on");
        assert_eq!(message("tree:2"), "tree takes no argument, but \"2\" follows it");
        assert!(message("toeplitz-damped:1").contains("in [0, 1)"));
    }

    /// The numbers behind a name are those of its strategy: every class has a sensitivity of its own here.
    #[test]
    fn every_name_is_built_for_the_problem() {
        let problem = Problem::streaming(12, Objective::Max);
        let losses: Vec<f64> = NAMES
            .iter()
            .map(|name| {
                let built = strategy(name).unwrap().build(&problem, &mut unobserved()).unwrap();
                problem.loss(&built).unwrap().0
            })
            .collect();
        let at = |name: &str| losses[NAMES.iter().position(|known| *known == name).unwrap()];
        assert!(
            (at("identity") - 12_f64.sqrt()).abs() < 1e-12 && (at("workload") - 12_f64.sqrt()).abs() < 1e-12
        );
        assert!(at("dense") < at("toeplitz-opt") && at("toeplitz-opt") <= at("toeplitz") + 1e-9);
        assert!(at("banded-opt:3") > at("banded-full:7") && at("banded:5") > at("toeplitz"));
        assert!(losses.iter().skip(2).all(|loss| *loss < at("identity")), "{losses:?}");
        // A form tells classes apart as far as they have forms of their own.
        for name in NAMES {
            let form = strategy(name).unwrap().build(&problem, &mut unobserved()).unwrap().form().unwrap();
            let fits = |other: &&str| strategy(other).unwrap().may_run_as(&form);
            let fitting: Vec<&str> = NAMES.into_iter().filter(fits).collect();
            assert!(fitting.contains(&name) && fitting.len() < 7, "{name}: {fitting:?}");
            let restarted = form.with_restarts(4);
            assert!(!restarted.is_ok_and(|form| strategy(name).unwrap().may_run_as(&form)), "{name}");
        }
        let built = strategy("banded-opt:3").unwrap().build(&problem, &mut unobserved()).unwrap();
        assert!(!StrategySpec::BandedOpt(2).may_run_as(&built.form().unwrap()));
        for name in ["banded:13", "bisr:13"] {
            let error = strategy(name).unwrap().build(&problem, &mut unobserved()).unwrap_err();
            assert_eq!(error.to_string(), "number of bands is 13: expected 1 to 12, the number of steps");
        }
    }
}
