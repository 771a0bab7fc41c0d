//! What `bench` says.

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
    /// `measured` or `predicted`.
    pub source: &'static str,
    pub noise_seconds: f64,
    pub gradient_seconds: f64,
    /// Their ratio.
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
    /// By operations alone.
    pub flops_only: f64,
    /// With the time that memory takes.
    pub with_memory: Vec<Share>,
}

/// A device's share.
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
                format!("{:.1}", form.gb_per_second),
                percent(form.share_of_bandwidth),
                bytes(form.state_bytes_per_param as f64 * self.model.params as f64),
            ]);
        }
        let flops = machine
            .flops_per_second
            .map_or_else(String::new, |f| format!(", matrix multiply {:.0} GFLOP/s", f / 1e9));
        format!(
            "{}: memory {:.1} GB/s{flops}; f32, ChaCha12\n\n{}\n\
             of bandwidth: the time of a plain read-modify-write of the same bytes, over the step's; a ring makes several rows of one pass\n\
             over its history, and may exceed 100 %\n",
            output.paint("1", &machine.device),
            machine.bytes_per_second / 1e9,
            table.render(output)
        )
    }

    fn overhead(&self, output: &Output<'_>) -> String {
        let mut devices: Vec<(&str, &str)> = Vec::new();
        for overhead in &self.overheads {
            if !devices.iter().any(|(device, _)| *device == overhead.device) {
                devices.push((&overhead.device, overhead.source));
            }
        }
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
            "{}\nnoise time over gradient time, and the noise of one step:\n\n{}",
            self.model.describe(),
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
        format!(
            "Relative cost of a banded strategy's noise, b·m operations against 6·m·B·S; then with the bytes that it moves,\n\
             {} per parameter against the gradient's operations:\n\n{}",
            bytes(8.0 + 4.0 * self.remarks.first().map_or(0.0, |remark| remark.bands as f64)),
            table.render(output)
        )
    }
}
