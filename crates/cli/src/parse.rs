//! Values that only the command line has: files, ranges, devices, each with an error that says what was expected. Strategies, schemas and
//! workloads have the planner's names.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use corrnoise::Rounds;
use corrnoise::planner::{PrivacyUnit, SettingName, names};
use std::ops::Range;
use std::path::{Path, PathBuf};

pub use corrnoise::Device;
pub use corrnoise::planner::names::{
    adjacency, adjacency_name, claims, number, objective, objective_name, participation, participation_name,
    sampling, strategy, strategy_choice, workload, workload_name,
};
pub use corrnoise::planner::{SamplingSpec, StrategyChoice, StrategySpec};

type Parsed<T> = std::result::Result<T, String>;

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

/// 8, 12 or 20.
pub fn rounds(text: &str) -> Parsed<Rounds> {
    let refuse = || format!("{text:?} is no number of rounds; expected 8, 12 or 20");
    text.parse::<u32>().ok().and_then(|rounds| Rounds::try_from(rounds).ok()).ok_or_else(refuse)
}

/// A device by its name, such as `cuda:1`.
pub fn device(text: &str) -> Parsed<Device> {
    text.parse().map_err(|_| format!("no such device; expected {}, as in cuda:1", Device::names()))
}

/// A setting by the planner's name for it, which help and shells can list.
pub fn setting() -> impl TypedValueParser<Value = SettingName> {
    PossibleValuesParser::new(names::SETTINGS).try_map(|text| names::setting(&text))
}

/// A privacy unit by the planner's name for it, which help and shells can list.
pub fn unit() -> impl TypedValueParser<Value = PrivacyUnit> {
    PossibleValuesParser::new(names::UNITS).try_map(|text| names::unit(&text))
}

/// The planner's list of strategies, as help shows it.
pub fn strategy_help() -> String {
    format!("Strategy: one of\n{}", entries(&names::STRATEGIES))
}

/// The planner's list of sampling schemes, as help shows it.
pub fn sampling_help() -> String {
    format!(
        "How batches are drawn from one dataset, for one strategy; where all are compared, balls-in-bins beside the usual schemes, or random-allocation or truncated-poisson alone: one of\n{}",
        entries(&names::SAMPLINGS)
    )
}

/// Names and what they stand for, in two columns.
fn entries(list: &[(&str, &str)]) -> String {
    let width = list.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines = list.iter().map(|(name, what)| format!("  {name:width$}  {what}"));
    lines.collect::<Vec<_>>().join("\n")
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

/// A whole number from 1 on: `2000`, `10_000_000` or `1e7`.
pub fn count(text: &str) -> Parsed<u64> {
    let refuse = || format!("{text:?} is no whole number from 1 on, such as 2000, 10_000_000 or 1e7");
    names::natural(text).filter(|value| *value >= 1).ok_or_else(refuse)
}

/// A whole number of bytes, 0 included.
pub fn size(text: &str) -> Parsed<u64> {
    names::natural(text).ok_or_else(|| format!("{text:?} is no whole number of bytes, such as 0 or 64"))
}

/// A range `a..b` with `a < b`.
pub fn range(text: &str) -> Parsed<Range<u64>> {
    let ends =
        text.split_once("..").and_then(|(from, to)| Some((names::natural(from)?, names::natural(to)?)));
    match ends {
        Some((from, to)) if from < to => Ok(from..to),
        Some((from, to)) => Err(format!(
            "the range {from}..{to} is empty; the end is excluded and must be larger than the start"
        )),
        None => Err("expected a range of whole numbers such as 0..100, the end excluded".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices() {
        let known = [("cpu", Device::Cpu), ("scalar", Device::Scalar), ("cuda", Device::Cuda(0))];
        let numbered = [
            ("cuda:0", Device::Cuda(0)),
            ("cuda:12", Device::Cuda(12)),
            ("cuda+host", Device::HostMade(0)),
            ("cuda:12+host", Device::HostMade(12)),
        ];
        for (text, expected) in known.into_iter().chain(numbered) {
            assert_eq!(device(text), Ok(expected), "{text}");
            assert_eq!(device(&expected.to_string()), Ok(expected), "{text}");
        }
        for text in [
            "",
            "CPU",
            "tpu",
            "cpu:0",
            "cuda:",
            "cuda:+1",
            "cuda:-1",
            "cuda:x",
            "cuda:99999999999999999999",
            "cpu+host",
            "+host",
        ] {
            assert!(device(text).unwrap_err().contains("cuda:N"), "{text}");
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
    }
}
