//! Values of the command line: strategies, schemas, workloads, numbers and ranges, each with an error that says what was expected.

use corrnoise::Rounds;
use corrnoise::planner::{Adjacency, Participation, Workload, optimize::Target};
use std::ops::Range;
use std::path::{Path, PathBuf};

type Parsed<T> = std::result::Result<T, String>;

/// A strategy as named on the command line.
#[derive(Clone, Debug, PartialEq)]
pub enum StrategySpec {
    Identity,
    Workload,
    Toeplitz,
    ToeplitzDamped(f64),
    ToeplitzOpt,
    Banded(usize),
    BandedOpt(usize),
    BandedFull(usize),
    Blt(usize),
    Dense,
    Tree,
    TreeFull,
    Bisr(usize),
    BandinvOpt(usize),
}

/// A strategy by name, or the best of all.
#[derive(Clone, Debug, PartialEq)]
pub enum StrategyChoice {
    Auto,
    One(StrategySpec),
}

/// How batches are drawn from a dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SamplingSpec {
    Poisson,
    BlockPoisson(u64),
    Cyclic,
    BallsInBins,
    None,
}

/// What makes noise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    Cpu,
    Scalar,
    Cuda,
}

/// A picture to draw.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    pub path: PathBuf,
    pub format: PictureFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PictureFormat {
    Svg,
    Png,
}

const STRATEGY_NAMES: &str = "identity, workload, toeplitz, toeplitz-damped:NU, toeplitz-opt, banded:B, banded-opt:B, banded-full:B, \
                              blt:D, dense, tree, tree-full, bisr:B or bandinv-opt:B";

/// `name` or `name:argument`.
pub fn strategy(text: &str) -> Parsed<StrategySpec> {
    let (name, argument) = split(text);
    let bands = |make: fn(usize) -> StrategySpec| Ok(make(whole(name, "B", argument)?));
    let plain = |spec: StrategySpec| match argument {
        None => Ok(spec),
        Some(argument) => Err(format!("{name} takes no argument, but {argument:?} follows it")),
    };
    match name {
        "identity" => plain(StrategySpec::Identity),
        "workload" => plain(StrategySpec::Workload),
        "toeplitz" => plain(StrategySpec::Toeplitz),
        "toeplitz-damped" => Ok(StrategySpec::ToeplitzDamped(fraction(name, "NU", argument)?)),
        "toeplitz-opt" => plain(StrategySpec::ToeplitzOpt),
        "banded" => bands(StrategySpec::Banded),
        "banded-opt" => bands(StrategySpec::BandedOpt),
        "banded-full" => bands(StrategySpec::BandedFull),
        "blt" => Ok(StrategySpec::Blt(whole(name, "D", argument)?)),
        "dense" => plain(StrategySpec::Dense),
        "tree" => plain(StrategySpec::Tree),
        "tree-full" => plain(StrategySpec::TreeFull),
        "bisr" => bands(StrategySpec::Bisr),
        "bandinv-opt" => bands(StrategySpec::BandinvOpt),
        _ => Err(format!("no such strategy; expected {STRATEGY_NAMES}")),
    }
}

/// `auto` or a strategy.
pub fn strategy_choice(text: &str) -> Parsed<StrategyChoice> {
    match text {
        "auto" => Ok(StrategyChoice::Auto),
        _ => strategy(text)
            .map(StrategyChoice::One)
            .map_err(|error| error.replace("expected", "expected auto,")),
    }
}

/// `poisson`, `block-poisson:B`, `cyclic`, `balls-in-bins` or `none`.
pub fn sampling(text: &str) -> Parsed<SamplingSpec> {
    match split(text) {
        ("poisson", None) => Ok(SamplingSpec::Poisson),
        ("block-poisson", blocks) => {
            Ok(SamplingSpec::BlockPoisson(whole("block-poisson", "B", blocks)? as u64))
        }
        ("cyclic", None) => Ok(SamplingSpec::Cyclic),
        ("balls-in-bins", None) => Ok(SamplingSpec::BallsInBins),
        ("none", None) => Ok(SamplingSpec::None),
        _ => Err("no such sampling; expected poisson, block-poisson:B, cyclic, balls-in-bins or none".into()),
    }
}

/// 8, 12 or 20.
pub fn rounds(text: &str) -> Parsed<Rounds> {
    let refuse = || format!("{text:?} is no number of rounds; expected 8, 12 or 20");
    text.parse::<u32>().ok().and_then(|rounds| Rounds::try_from(rounds).ok()).ok_or_else(refuse)
}

/// `single`, `full`, `cyclic:B,K` or `minsep:B,K`.
pub fn participation(text: &str) -> Parsed<Participation> {
    let (name, argument) = split(text);
    let pair = || {
        let (separation, times) = argument.and_then(|pair| pair.split_once(',')).ok_or_else(|| {
            format!("{name} needs two numbers, as in {name}:400,5 (separation, participations)")
        })?;
        Ok::<_, String>((whole(name, "B", Some(separation))?, whole(name, "K", Some(times))?))
    };
    match (name, argument) {
        ("single", None) => Ok(Participation::Single),
        ("full", None) => Ok(Participation::Full),
        ("cyclic", _) => pair()
            .map(|(separation, max_participations)| Participation::Cyclic { separation, max_participations }),
        ("minsep", _) => {
            pair().map(|(min_sep, max_participations)| Participation::MinSep { min_sep, max_participations })
        }
        _ => Err("no such participation; expected single, cyclic:B,K, minsep:B,K or full".into()),
    }
}

/// `prefix`, `momentum:BETA`, `momentum:BETA,DECAY` or `nesterov:BETA`.
pub fn workload(text: &str) -> Parsed<Workload> {
    let (name, argument) = split(text);
    let made = match (name, argument) {
        ("prefix", None) => Ok(Workload::Prefix),
        ("momentum", Some(argument)) => {
            let (beta, decay) = argument.split_once(',').unwrap_or((argument, "0"));
            Workload::momentum(number(beta)?, number(decay)?)
        }
        ("nesterov", Some(beta)) => Workload::nesterov(number(beta)?),
        _ => {
            return Err(
                "no such workload; expected prefix, momentum:BETA, momentum:BETA,DECAY or nesterov:BETA"
                    .into(),
            );
        }
    };
    made.map_err(|error| error.to_string())
}

/// `zero-out` or `replace-one`.
pub fn adjacency(text: &str) -> Parsed<Adjacency> {
    match text {
        "zero-out" => Ok(Adjacency::ZeroOut),
        "replace-one" => Ok(Adjacency::ReplaceOne),
        _ => Err("no such relation; expected zero-out or replace-one".into()),
    }
}

/// `max` or `rms`.
pub fn target(text: &str) -> Parsed<Target> {
    match text {
        "max" => Ok(Target::Max),
        "rms" => Ok(Target::Rms),
        _ => Err("no such loss; expected max or rms".into()),
    }
}

/// `cpu`, `scalar` or `cuda`.
pub fn backend(text: &str) -> Parsed<Backend> {
    match text {
        "cpu" => Ok(Backend::Cpu),
        "scalar" => Ok(Backend::Scalar),
        "cuda" => Ok(Backend::Cuda),
        _ => Err("no such backend; expected cpu, scalar or cuda".into()),
    }
}

/// A file name that ends in .svg or .png.
pub fn picture(text: &str) -> Parsed<Picture> {
    let extension = Path::new(text).extension().and_then(|extension| extension.to_str()).unwrap_or("");
    let format = match extension.to_ascii_lowercase().as_str() {
        "svg" => PictureFormat::Svg,
        "png" => PictureFormat::Png,
        _ => return Err("expected a file name that ends in .svg or .png".into()),
    };
    Ok(Picture { path: text.into(), format })
}

/// A finite number.
pub fn number(text: &str) -> Parsed<f64> {
    match text.trim().parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(value),
        _ => Err(format!("{text:?} is no finite number")),
    }
}

/// A whole number from 1 on: `2000`, `10_000_000` or `1e7`.
pub fn count(text: &str) -> Parsed<u64> {
    let refuse = || format!("{text:?} is no whole number from 1 on, such as 2000, 10_000_000 or 1e7");
    natural(text).filter(|value| *value >= 1).ok_or_else(refuse)
}

/// A whole number of bytes, 0 included.
pub fn size(text: &str) -> Parsed<u64> {
    natural(text).ok_or_else(|| format!("{text:?} is no whole number of bytes, such as 0 or 64"))
}

/// `a..b` with `a < b`.
pub fn range(text: &str) -> Parsed<Range<u64>> {
    let ends = text.split_once("..").and_then(|(from, to)| Some((natural(from)?, natural(to)?)));
    match ends {
        Some((from, to)) if from < to => Ok(from..to),
        Some((from, to)) => Err(format!(
            "the range {from}..{to} is empty; the end is excluded and must be larger than the start"
        )),
        None => Err("expected a range of whole numbers such as 0..100, the end excluded".into()),
    }
}

fn natural(text: &str) -> Option<u64> {
    let text = text.trim();
    if text.starts_with(|c: char| c.is_ascii_digit()) && text.contains(['e', 'E']) {
        // Above 2^53 a float is not the number that was written.
        return text
            .parse::<f64>()
            .ok()
            .filter(|v| v.fract() == 0.0 && *v <= 9_007_199_254_740_992.0)
            .map(|v| v as u64);
    }
    if !text.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    text.replace('_', "").parse().ok()
}

fn split(text: &str) -> (&str, Option<&str>) {
    match text.split_once(':') {
        Some((name, argument)) => (name, Some(argument)),
        None => (text, None),
    }
}

fn whole(name: &str, letter: &str, argument: Option<&str>) -> Parsed<usize> {
    let text = argument.ok_or_else(|| {
        format!("{name} needs a number, as in {name}:{}", if letter == "D" { 4 } else { 16 })
    })?;
    let refuse = || format!("{letter} in {name}:{letter} is {text:?}: expected a whole number from 1 on");
    natural(text).and_then(|value| usize::try_from(value).ok()).filter(|value| *value >= 1).ok_or_else(refuse)
}

fn fraction(name: &str, letter: &str, argument: Option<&str>) -> Parsed<f64> {
    let text = argument.ok_or_else(|| format!("{name} needs a number, as in {name}:0.01"))?;
    let value = number(text)?;
    if (0.0..1.0).contains(&value) {
        return Ok(value);
    }
    Err(format!("{letter} in {name}:{letter} is {value}: expected a number in [0, 1)"))
}

/// A participation as the command line writes it.
pub fn participation_name(participation: &Participation) -> String {
    match participation {
        Participation::Single => "single".into(),
        Participation::Full => "full".into(),
        Participation::Cyclic { separation, max_participations } => {
            format!("cyclic:{separation},{max_participations}")
        }
        Participation::MinSep { min_sep, max_participations } => {
            format!("minsep:{min_sep},{max_participations}")
        }
        Participation::Patterns(patterns) => format!("{} patterns", patterns.len()),
    }
}

/// A relation as the command line writes it.
pub fn adjacency_name(adjacency: Adjacency) -> &'static str {
    match adjacency {
        Adjacency::ZeroOut => "zero-out",
        Adjacency::ReplaceOne => "replace-one",
    }
}

/// A workload as the command line writes it.
pub fn workload_name(workload: &Workload) -> String {
    match workload {
        Workload::Prefix => "prefix".into(),
        Workload::Momentum { beta, weight_decay } if *weight_decay == 0.0 => format!("momentum:{beta}"),
        Workload::Momentum { beta, weight_decay } => format!("momentum:{beta},{weight_decay}"),
        Workload::Nesterov { beta } => format!("nesterov:{beta}"),
        Workload::Toeplitz(_) => "Toeplitz".into(),
        Workload::Scaled { base, .. } => format!("scaled {}", workload_name(base)),
        Workload::Dense(_) => "dense".into(),
    }
}

impl std::fmt::Display for StrategySpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StrategySpec::Identity => write!(f, "identity"),
            StrategySpec::Workload => write!(f, "workload"),
            StrategySpec::Toeplitz => write!(f, "toeplitz"),
            StrategySpec::ToeplitzDamped(nu) => write!(f, "toeplitz-damped:{nu}"),
            StrategySpec::ToeplitzOpt => write!(f, "toeplitz-opt"),
            StrategySpec::Banded(bands) => write!(f, "banded:{bands}"),
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

    #[test]
    fn names_are_what_they_were_parsed_from() {
        for name in [
            "identity",
            "workload",
            "toeplitz",
            "toeplitz-damped:0.25",
            "toeplitz-opt",
            "banded:16",
            "banded-opt:3",
            "banded-full:7",
            "blt:4",
            "dense",
            "tree",
            "tree-full",
            "bisr:5",
            "bandinv-opt:9",
        ] {
            assert_eq!(strategy(name).unwrap().to_string(), name);
        }
        for name in ["single", "full", "cyclic:400,5", "minsep:7,3"] {
            assert_eq!(participation_name(&participation(name).unwrap()), name);
        }
        for name in ["prefix", "momentum:0.9", "momentum:0.9,0.01", "nesterov:0.95"] {
            assert_eq!(workload_name(&workload(name).unwrap()), name);
        }
    }

    #[test]
    fn numbers_and_ranges() {
        assert_eq!(count("10_000"), Ok(10_000));
        assert_eq!(count("1e7"), Ok(10_000_000));
        assert_eq!(count("18446744073709551615"), Ok(u64::MAX));
        assert!(
            count("0").is_err() && count("-3").is_err() && count("1.5e0").is_err() && count("1e300").is_err()
        );
        assert!(count("18446744073709551616").is_err() && count("+7").is_err() && count("").is_err());
        assert_eq!(range("3..1_000"), Ok(3..1000));
        assert!(range("3..3").unwrap_err().contains("empty"));
        assert!(
            range("3-9").is_err()
                && range("..9").is_err()
                && range("3..").is_err()
                && range("-1..4").is_err()
        );
        assert!(number("nan").is_err() && number("1e999").is_err());
    }
}
