//! What `bench` prints, for people and as JSON.

use super::machine::Machine;
use super::model::Model;
use crate::output::Output;
use crate::table::{Table, bytes, percent, seconds};
use serde::Serialize;

/// The keys of `bench --json`.
#[derive(Serialize)]
pub struct Report {
    pub machine: Machine,
    pub model: Model,
    pub overheads: Vec<Overhead>,
    pub remarks: Vec<Remark>,
}

/// Noise against gradient, for a form on a device.
#[derive(Serialize)]
pub struct Overhead {
    pub form: String,
    pub device: String,
    /// Either `measured` or `predicted`.
    pub source: &'static str,
    pub noise_seconds: f64,
    pub gradient_seconds: f64,
    /// Noise time over gradient time.
    pub overhead: f64,
}

impl Overhead {
    pub fn new(form: String, device: String, source: &'static str, noise: f64, gradient: f64) -> Overhead {
        Overhead {
            form,
            device,
            source,
            noise_seconds: noise,
            gradient_seconds: gradient,
            overhead: noise / gradient,
        }
    }
}

/// An example of the remark on relative cost.
#[derive(Serialize)]
pub struct Remark {
    pub bands: u64,
    pub batch: u64,
    pub seq: u64,
    /// Noise over gradient by operations alone.
    pub flops_only: f64,
    /// Noise over gradient with the time that memory takes.
    pub with_memory: Vec<Share>,
}

/// Noise over gradient on one device.
#[derive(Serialize)]
pub struct Share {
    pub device: String,
    pub source: &'static str,
    pub overhead: f64,
}

impl From<(String, &'static str, f64)> for Share {
    fn from((device, source, overhead): (String, &'static str, f64)) -> Share {
        Share { device, source, overhead }
    }
}

impl Report {
    /// Every device that has an overhead, with whether its times are `measured` or `predicted`.
    pub fn devices(&self) -> Vec<(&str, &'static str)> {
        let mut devices: Vec<(&str, &'static str)> = Vec::new();
        for overhead in &self.overheads {
            if !devices.iter().any(|(device, _)| *device == overhead.device) {
                devices.push((&overhead.device, overhead.source));
            }
        }
        devices
    }

    pub fn text(&self, output: &Output<'_>) -> String {
        format!("{}\n{}\n{}", self.throughput(output), self.overhead(output), self.remark(output))
    }

    fn throughput(&self, output: &Output<'_>) -> String {
        let machine = &self.machine;
        let mut table = Table::new([
            "form",
            "state/param",
            "moved/param",
            "params/s",
            "GB/s",
            "of bandwidth",
            "state of the model",
        ]);
        for form in &machine.forms {
            table.row([
                form.name.clone(),
                format!("{} B", form.state_bytes_per_param),
                format!("{} B", form.bytes_per_param),
                format!("{:.2e}", form.params_per_second),
                rate(form.gb_per_second),
                percent(form.share_of_bandwidth),
                bytes(form.state_bytes_per_param as f64 * self.model.params as f64),
            ]);
        }
        let flops = machine
            .flops_per_second
            .map_or_else(String::new, |f| format!(", matrix multiply {:.0} GFLOP/s", f / 1e9));
        let (device, memory) = (output.paint("1", &machine.device), rate(machine.bytes_per_second / 1e9));
        let head = format!("{device}: memory {memory} GB/s{flops}; f32, ChaCha12");
        let ahead = match machine.threads {
            // A GPU's kernels work row by row.
            0 => "",
            _ => {
                "; a ring of 9 bands or more makes 8 rows in one pass over its history, and moves fewer bytes than row by row"
            }
        };
        let legend = format!(
            "moved: bytes that a step reads and writes{ahead}. of bandwidth: GB/s over the {memory} that memory moved at best in this run, in a plain pass or in a step."
        );
        format!("{}\n\n{}\n{}\n", output.wrap(&head), table.render(output), output.wrap(&legend))
    }

    fn overhead(&self, output: &Output<'_>) -> String {
        let devices = self.devices();
        let headings = devices.iter().map(|(device, source)| format!("{device} ({source})"));
        let mut table = Table::new(["form".to_owned()].into_iter().chain(headings));
        let forms: Vec<&str> = self.overheads.iter().map(|overhead| overhead.form.as_str()).collect();
        let mut done: Vec<&str> = Vec::new();
        for form in forms {
            if done.contains(&form) {
                continue;
            }
            done.push(form);
            let of = |device: &str| self.overheads.iter().find(|o| o.form == form && o.device == device);
            let cell = |(device, _): &(&str, &str)| {
                of(device).map_or_else(
                    || "-".into(),
                    |o| format!("{} ({})", percent(o.overhead), seconds(o.noise_seconds)),
                )
            };
            table.row([form.to_owned()].into_iter().chain(devices.iter().map(cell)));
        }
        let gradient = |(device, _): &(&str, &str)| {
            let own = self.overheads.iter().find(|overhead| overhead.device == *device);
            own.map_or_else(|| "-".into(), |overhead| seconds(overhead.gradient_seconds))
        };
        table.row(["gradient".to_owned()].into_iter().chain(devices.iter().map(gradient)));
        format!(
            "{}\n{}\n\n{}",
            output.wrap(&self.model.describe()),
            output.wrap("noise time over gradient time, and the noise of one step:"),
            table.render(output)
        )
    }

    fn remark(&self, output: &Output<'_>) -> String {
        let mut headings = vec!["bands, batch, tokens".to_owned(), "operations only".to_owned()];
        if let Some(first) = self.remarks.first() {
            headings
                .extend(first.with_memory.iter().map(|share| format!("{} ({})", share.device, share.source)));
        }
        let mut table = Table::new(headings);
        for remark in &self.remarks {
            let example = format!("b = {}, B = {}, S = {}", remark.bands, remark.batch, remark.seq);
            let shares = remark.with_memory.iter().map(|share| percent(share.overhead));
            table.row([example, percent(remark.flops_only)].into_iter().chain(shares));
        }
        let bands = self.remarks.first().map_or(0.0, |remark| remark.bands as f64);
        let text = format!(
            "Relative cost of a banded strategy's noise: by operations only, b·m against 6·m·B·S; then with the time that memory takes, as measured, and as predicted from the {} per parameter that a GPU's kernel moves:",
            bytes(8.0 + 4.0 * bands)
        );
        format!("{}\n\n{}", output.wrap(&text), table.render(output))
    }
}

/// Gigabytes per second with two digits that mean something.
fn rate(gb_per_second: f64) -> String {
    match gb_per_second {
        rate if rate >= 1.0 => format!("{rate:.1}"),
        rate if rate >= 0.1 => format!("{rate:.2}"),
        rate => format!("{rate:.3}"),
    }
}
