//! The report on a terminal: one line per form, and more where something is wrong.

use super::cases::Case;
use super::report::{Check, Report};
use crate::output::Output;
use crate::table::{Table, bytes, percent, seconds};
use crate::verify::Verdict;
use crate::wrap::lines;

/// Failed checks of one form that are told one by one.
const TOLD: usize = 3;
/// Failed checks that the summary lists.
const LISTED: usize = 12;

/// One form's checks in one group.
pub fn line(case: &Case, checks: &[Check], output: &Output<'_>) -> String {
    let failed: Vec<&Check> = checks.iter().filter(|check| check.verdict != Verdict::Passed).collect();
    let word = match failed.is_empty() {
        true => output.paint("32", "ok     "),
        false => output.paint("31;1", "FAILED "),
    };
    let time = seconds(checks.iter().map(|check| check.seconds).sum());
    let passed = format!("{} of {}", checks.len() - failed.len(), checks.len());
    let mut text = format!("{word} {:<18} {:<12} {passed:>8} {time:>9}", case.name, case.kernel);
    for check in failed.iter().take(TOLD) {
        let kernel = if check.kernel == case.kernel { String::new() } else { format!(" ({})", check.kernel) };
        let told = format!("{}{kernel}: {}", check.point, check.detail);
        for line in lines(&told, output.screen.width - 8, 0) {
            text += &format!("\n        {line}");
        }
    }
    if failed.len() > TOLD {
        text += &format!("\n        and {} more", failed.len() - TOLD);
    }
    text
}

impl Report {
    /// The line that says what is examined.
    pub fn head(&self, output: &Output<'_>) -> String {
        let device = &self.device;
        let driver =
            device.driver_version.as_ref().map_or_else(String::new, |version| format!(", driver {version}"));
        let text = format!(
            "{}: compute capability {}, {} multiprocessors, {} of memory; CUDA {}{driver}",
            output.paint("1", &device.name),
            device.compute_capability,
            device.multiprocessors,
            bytes(device.memory_bytes as f64),
            device.cuda_version
        );
        output.wrap(&text)
    }

    /// The speed of every form, and what failed.
    pub fn summary(&self, output: &Output<'_>) -> String {
        let mut table = Table::new(["form", "gradient", "ps/param", "GB/s", "of a copy", "predicted"]);
        for row in &self.throughput {
            let known = |value: Option<f64>, show: &dyn Fn(f64) -> String| {
                value.map_or_else(|| "failed".to_owned(), show)
            };
            let per_param = |seconds: f64| format!("{:.1}", 1e12 * seconds / row.parameters as f64);
            let with_prepare =
                row.seconds_with_prepare.map_or_else(String::new, |both| format!(" ({})", per_param(both)));
            table.row([
                format!("{}{}", row.form, row.options.label()),
                row.gradient.clone(),
                known(row.seconds_per_step, &per_param) + &with_prepare,
                known(row.bytes_per_second, &|rate| format!("{:.1}", rate / 1e9)),
                known(row.share_of_copy, &percent),
                known(row.share_of_prediction, &percent),
            ]);
        }
        let legend = "ahead: so many rows are made at a time. prepared: the step alone, after its row was made, and in parentheses both. of a copy: the time of a device-to-device copy of the same bytes over that of the step. predicted: the time that bytes and instructions allow on this device over that of the step.";
        format!(
            "\nThroughput, medians of 20 steps:\n\n{}\n{}\n\n{}",
            table.render(output),
            output.wrap(legend),
            self.conclusion(output)
        )
    }

    fn conclusion(&self, output: &Output<'_>) -> String {
        let total = self.checks.len() + self.throughput.len();
        let mut text = format!("{total} checks: {} passed, ", total - self.failed.len());
        text += &format!("{} failed", self.failed.len());
        for name in self.failed.iter().take(LISTED) {
            text += &format!("\n{} {}", output.paint("31;1", "FAILED"), name);
        }
        if self.failed.len() > LISTED {
            text += &format!("\nand {} more, all of them in the report", self.failed.len() - LISTED);
        }
        text.lines().map(|line| output.wrap(line)).collect::<Vec<_>>().join("\n")
    }
}
