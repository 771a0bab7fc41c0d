//! Values as people write them: strategies, participations, workloads, numbers. The command line and other languages share these names, and
//! the half sentence that follows a wrong one.

use crate::error::{Error, Result};
use crate::optimize::Objective;
use crate::plan::request::SettingName;
use crate::privacy::claim::{Claims, PrivacyUnit};
use crate::privacy::participation::Participation;
use crate::privacy::sensitivity::Adjacency;
use crate::utility::workload::Workload;

pub use crate::privacy::sampling::{SAMPLINGS, sampling};
pub use crate::strategy::names::{STRATEGIES, strategy, strategy_choice};

/// `single`, `full`, `cyclic:B,K` or `minsep:B,K`.
pub fn participation(text: &str) -> Result<Participation> {
    let (name, argument) = split(text);
    let pair = || {
        let (separation, times) = argument.and_then(|pair| pair.split_once(',')).ok_or_else(|| {
            Error::Input(format!("{name} needs two numbers, as in {name}:400,5 (separation, participations)"))
        })?;
        Ok::<_, Error>((whole(name, "B", Some(separation))?, whole(name, "K", Some(times))?))
    };
    match (name, argument) {
        ("single", None) => Ok(Participation::Single),
        ("full", None) => Ok(Participation::Full),
        ("cyclic", _) => pair()
            .map(|(separation, max_participations)| Participation::Cyclic { separation, max_participations }),
        ("minsep", _) => {
            pair().map(|(min_sep, max_participations)| Participation::MinSep { min_sep, max_participations })
        }
        _ => Err(unknown("participation", "single, cyclic:B,K, minsep:B,K or full")),
    }
}

/// `prefix`, `momentum:BETA`, `momentum:BETA,DECAY` or `nesterov:BETA`.
pub fn workload(text: &str) -> Result<Workload> {
    match split(text) {
        ("prefix", None) => Ok(Workload::Prefix),
        ("momentum", Some(argument)) => {
            let (beta, decay) = argument.split_once(',').unwrap_or((argument, "0"));
            Workload::momentum(number(beta)?, number(decay)?)
        }
        ("nesterov", Some(beta)) => Workload::nesterov(number(beta)?),
        _ => Err(unknown("workload", "prefix, momentum:BETA, momentum:BETA,DECAY or nesterov:BETA")),
    }
}

/// Reads `zero-out` or `replace-one`.
pub fn adjacency(text: &str) -> Result<Adjacency> {
    match text {
        "zero-out" => Ok(Adjacency::ZeroOut),
        "replace-one" => Ok(Adjacency::ReplaceOne),
        _ => Err(unknown("adjacency", "zero-out or replace-one")),
    }
}

/// Reads `proven` or `confident`.
pub fn claims(text: &str) -> Result<Claims> {
    match text {
        "proven" => Ok(Claims::Proven),
        "confident" => Ok(Claims::Confident),
        _ => Err(unknown("claims", "proven or confident")),
    }
}

/// Reads `max` or `rms`.
pub fn objective(text: &str) -> Result<Objective> {
    match text {
        "max" => Ok(Objective::Max),
        "rms" => Ok(Objective::Rms),
        _ => Err(unknown("objective", "max or rms")),
    }
}

/// An objective as [`objective`] reads it.
pub fn objective_name(objective: Objective) -> &'static str {
    match objective {
        Objective::Max => "max",
        Objective::Rms => "rms",
    }
}

/// The names that [`unit()`] reads.
pub const UNITS: [&str; 2] = ["example", "user"];

/// Reads `example` or `user`.
pub fn unit(text: &str) -> Result<PrivacyUnit> {
    match text {
        "example" => Ok(PrivacyUnit::Example),
        "user" => Ok(PrivacyUnit::User),
        _ => Err(unknown("unit", &listed(UNITS))),
    }
}

/// The names that [`setting`] reads.
pub const SETTINGS: [&str; 3] = ["centralized", "federated", "streaming"];

/// `centralized`, `federated` or `streaming`.
pub fn setting(text: &str) -> Result<SettingName> {
    match text {
        "centralized" => Ok(SettingName::Centralized),
        "federated" => Ok(SettingName::Federated),
        "streaming" => Ok(SettingName::Streaming),
        _ => Err(unknown("setting", &listed(SETTINGS))),
    }
}

/// Reads a finite number.
pub fn number(text: &str) -> Result<f64> {
    match text.trim().parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(value),
        _ => Err(Error::Input(format!("{text:?} is no finite number"))),
    }
}

/// A whole number, 0 included: `2000`, `10_000_000` or `1e7`.
pub fn natural(text: &str) -> Option<u64> {
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

pub(crate) fn split(text: &str) -> (&str, Option<&str>) {
    match text.split_once(':') {
        Some((name, argument)) => (name, Some(argument)),
        None => (text, None),
    }
}

pub(crate) fn whole(name: &str, letter: &str, argument: Option<&str>) -> Result<usize> {
    let text = argument.ok_or_else(|| {
        Error::Input(format!("{name} needs a number, as in {name}:{}", if letter == "D" { 4 } else { 16 }))
    })?;
    let refuse = || {
        Error::Input(format!("{letter} in {name}:{letter} is {text:?}: expected a whole number from 1 on"))
    };
    natural(text).and_then(|value| usize::try_from(value).ok()).filter(|value| *value >= 1).ok_or_else(refuse)
}

pub(crate) fn fraction(name: &str, letter: &str, argument: Option<&str>) -> Result<f64> {
    let text = argument.ok_or_else(|| Error::Input(format!("{name} needs a number, as in {name}:0.01")))?;
    let value = number(text)?;
    if (0.0..1.0).contains(&value) {
        return Ok(value);
    }
    Err(Error::Input(format!("{letter} in {name}:{letter} is {value}: expected a number in [0, 1)")))
}

/// A list in words: `a, b or c`.
pub(crate) fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    match names.split_last() {
        Some((last, [])) => (*last).into(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

/// The error for a name that stands for nothing.
pub(crate) fn unknown(kind: &str, expected: &str) -> Error {
    Error::Input(format!("no such {kind}; expected {expected}"))
}

/// A participation as [`participation`] reads it.
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

/// An adjacency as [`adjacency`] reads it.
pub fn adjacency_name(adjacency: Adjacency) -> &'static str {
    match adjacency {
        Adjacency::ZeroOut => "zero-out",
        Adjacency::ReplaceOne => "replace-one",
    }
}

/// A workload as [`workload`] reads it, where it has a name.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_they_were_parsed_from() {
        for name in ["single", "full", "cyclic:400,5", "minsep:7,3"] {
            assert_eq!(participation_name(&participation(name).unwrap()), name);
        }
        for name in ["prefix", "momentum:0.9", "momentum:0.9,0.01", "nesterov:0.95"] {
            assert_eq!(workload_name(&workload(name).unwrap()), name);
        }
        for name in ["zero-out", "replace-one"] {
            assert_eq!(adjacency_name(adjacency(name).unwrap()), name);
        }
        assert_eq!((objective("max").unwrap(), objective("rms").unwrap()), (Objective::Max, Objective::Rms));
        assert_eq!(UNITS.map(|name| unit(name).unwrap()), [PrivacyUnit::Example, PrivacyUnit::User]);
        assert!(SETTINGS.iter().all(|name| setting(name).is_ok()));
        assert_eq!(setting("federated").unwrap(), SettingName::Federated);
        assert_eq!((objective_name(Objective::Max), objective_name(Objective::Rms)), ("max", "rms"));
    }

    #[test]
    fn names_of_nothing_say_what_there_is() {
        let refused = [
            participation("twice").unwrap_err(),
            workload("suffix").unwrap_err(),
            adjacency("add-remove").unwrap_err(),
            objective("mean").unwrap_err(),
            unit("household").unwrap_err(),
            setting("decentralized").unwrap_err(),
        ];
        let expected = ["minsep:B,K", "nesterov:BETA", "zero-out", "rms", "user", "federated"];
        for (error, part) in refused.iter().zip(expected) {
            let text = error.to_string();
            assert!(text.starts_with("no such ") && text.contains(part), "{text}");
        }
        assert!(participation("minsep:3").unwrap_err().to_string().contains("minsep:400,5"));
        assert!(workload("momentum:1.5").unwrap_err().to_string().contains("1.5"));
    }

    #[test]
    fn numbers() {
        assert_eq!(
            (natural("10_000"), natural("1e7"), natural("0")),
            (Some(10_000), Some(10_000_000), Some(0))
        );
        assert_eq!(natural("18446744073709551615"), Some(u64::MAX));
        for text in ["-3", "1.5e0", "1e300", "18446744073709551616", "+7", ""] {
            assert_eq!(natural(text), None, "{text}");
        }
        assert!(number("nan").is_err() && number("1e999").is_err());
    }
}
