//! The file to send: JSON with a version, keys that explain themselves, and no word about whoever made it.

use super::cases::{Case, Options, Point};
use super::throughput::Throughput;
use crate::verify::{Finding, Verdict};
use corrnoise::NOISE_SPEC_VERSION;
use corrnoise::examine::Facts;
use serde::Serialize;
use std::time::Duration;

/// The version of the report's keys; a change that a reader would notice adds one.
const VERSION: u32 = 1;

/// The keys of the report, which are also those of `verify --device … --json`.
#[derive(Serialize)]
pub struct Report {
    format: &'static str,
    version: u32,
    corrnoise_version: &'static str,
    noise_spec_version: u32,
    /// The operating system and the processor's architecture, such as `linux x86_64`.
    host: String,
    pub device: Device,
    /// The values that a check of parity compares.
    values_per_check: u64,
    pub passed: bool,
    pub failed: Vec<String>,
    pub checks: Vec<Check>,
    pub throughput: Vec<Throughput>,
    seconds: f64,
}

/// What the driver says of the device.
#[derive(Serialize)]
pub struct Device {
    pub name: String,
    pub compute_capability: String,
    /// The newest CUDA version that the driver serves.
    pub cuda_version: String,
    /// The version of the kernel driver, where the system tells.
    pub driver_version: Option<String>,
    pub memory_bytes: u64,
    pub multiprocessors: u64,
    pub clock_hz: f64,
    /// The peak rate of the device's memory, from its clock and its width.
    pub memory_bytes_per_second: f64,
    pub l2_bytes: u64,
}

impl From<Facts> for Device {
    fn from(facts: Facts) -> Device {
        Device {
            name: facts.name,
            compute_capability: format!("{}.{}", facts.capability.0, facts.capability.1),
            cuda_version: format!("{}.{}", facts.cuda_version / 1000, facts.cuda_version % 1000 / 10),
            driver_version: driver_version(),
            memory_bytes: facts.memory_bytes,
            multiprocessors: facts.multiprocessors,
            clock_hz: facts.clock_hz,
            memory_bytes_per_second: facts.memory_bytes_per_second,
            l2_bytes: facts.l2_bytes,
        }
    }
}

/// One check of one kernel.
#[derive(Serialize)]
pub struct Check {
    pub group: &'static str,
    /// The module of kernels, as the file in `crates/cuda/ptx` is named; two with a plus sign where one makes rows and the other adds them.
    pub kernel: String,
    pub form: String,
    pub gradient: String,
    pub rounds: u32,
    pub options: Options,
    pub steps: u64,
    pub coordinates: u64,
    pub verdict: Verdict,
    /// The first difference, or why the check could not be carried out.
    pub detail: String,
    pub seconds: f64,
    #[serde(skip)]
    pub point: String,
}

impl Check {
    pub fn new(
        group: &'static str,
        kernel: String,
        case: &Case,
        point: &Point,
        coordinates: u64,
        finding: Finding,
        elapsed: Duration,
    ) -> Check {
        Check {
            group,
            kernel,
            form: case.name.clone(),
            gradient: point.gradient.to_string(),
            rounds: point.rounds.into(),
            options: point.options,
            steps: case.steps(point.options),
            coordinates,
            verdict: finding.verdict,
            detail: finding.detail,
            seconds: elapsed.as_secs_f64(),
            point: point.describe(),
        }
    }

    /// The check by name, for lists of what failed.
    fn name(&self) -> String {
        format!("{}: {} (kernel {}), {}", self.group, self.form, self.kernel, self.point)
    }
}

impl Report {
    pub fn new(facts: Facts, values_per_check: u64) -> Report {
        Report {
            format: "corrnoise GPU report",
            version: VERSION,
            corrnoise_version: env!("CARGO_PKG_VERSION"),
            noise_spec_version: NOISE_SPEC_VERSION,
            host: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            device: facts.into(),
            values_per_check,
            passed: false,
            failed: Vec::new(),
            checks: Vec::new(),
            throughput: Vec::new(),
            seconds: 0.0,
        }
    }

    /// Draws the conclusion from all checks. Speed is reported and never judged; a step that could not be timed has failed.
    pub fn finish(&mut self, elapsed: Duration) {
        let failed = self.checks.iter().filter(|check| check.verdict != Verdict::Passed).map(Check::name);
        let untimed = self.throughput.iter().filter(|row| row.error.is_some()).map(Throughput::name);
        self.failed = failed.chain(untimed).collect();
        self.passed = self.failed.is_empty();
        self.seconds = elapsed.as_secs_f64();
    }
}

/// The version of NVIDIA's kernel module, whose compiler translates the PTX. libcuda tells the CUDA version only.
fn driver_version() -> Option<String> {
    version_in(&std::fs::read_to_string("/proc/driver/nvidia/version").ok()?)
}

/// The first word that is made of digits and dots alone: the line also holds who built the module and when.
fn version_in(text: &str) -> Option<String> {
    let is_version =
        |word: &&str| word.contains('.') && word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    text.split_whitespace().find(is_version).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::version_in;

    #[test]
    fn the_driver_s_version_is_all_that_is_taken() {
        let text = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC version:  gcc version 9.4.0 (user@host)\n";
        assert_eq!(version_in(text).as_deref(), Some("535.104.05"));
        assert_eq!(version_in("no version here"), None);
    }
}
