//! What `bench` prints, for people and as JSON.

use super::machine::Machine;
use super::model::Model;
use super::ways::{Way, WayCost};
use crate::output::Output;
use crate::table::{Table, bytes, percent, seconds};
use corrnoise::Dtype;
use corrnoise::planner::{Execution, Moved};
use serde::Serialize;

/// The keys of `bench --json`.
#[derive(Serialize)]
pub struct Report {
    pub machine: Machine,
    pub model: Model,
    pub ways: Vec<WayCost>,
    pub overheads: Vec<Overhead>,
    pub remarks: Vec<Remark>,
}

/// Noise on the critical path against gradient, for one way to run a form on a device.
#[derive(Serialize)]
pub struct Overhead {
    pub form: String,
    pub way: Way,
    pub device: String,
    /// Either `measured` or `predicted`.
    pub source: &'static str,
    pub noise_seconds: f64,
    pub gradient_seconds: f64,
    /// Noise time over gradient time.
    pub overhead: f64,
}

impl Overhead {
    pub fn new(cost: &WayCost, device: String, source: &'static str, noise: f64, gradient: f64) -> Overhead {
        Overhead {
            form: cost.form.clone(),
            way: cost.way,
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

    /// The overhead of one way on one device.
    pub fn overhead_of(&self, cost: &WayCost, device: &str) -> Option<&Overhead> {
        let is_it = |own: &&Overhead| own.form == cost.form && own.way == cost.way && own.device == device;
        self.overheads.iter().find(is_it)
    }

    pub fn text(&self, output: &Output<'_>) -> String {
        let parts = [
            self.throughput(output),
            self.prepared(output),
            self.predicted(output),
            self.overhead(output),
            self.remark(output),
        ];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n")
    }

    /// What a step costs whose row was made before it, as measured here.
    fn prepared(&self, output: &Output<'_>) -> String {
        let mut table = Table::new([
            "form",
            "moved by the step",
            "by prepare",
            "step, params/s",
            "time of the step against before",
            "prepare, params/s",
        ]);
        let mut is_measured = false;
        for form in &self.machine.forms {
            let Some(prepare) = form.prepare else { continue };
            is_measured = true;
            table.row([
                form.name.clone(),
                format!("{} B", prepare.critical_bytes_per_param),
                format!("{} B", prepare.background_bytes_per_param),
                format!("{:.2e}", prepare.step_params_per_second),
                percent(form.params_per_second / prepare.step_params_per_second),
                format!("{:.2e}", prepare.prepare_params_per_second),
            ]);
        }
        if !is_measured {
            return String::new();
        }
        let text = "After `prepare`, which makes the row in the background (few threads of low priority) while the gradient is computed, the step on the critical path only adds it (measured):";
        format!("{}\n\n{}", output.wrap(text), table.render(output))
    }

    /// Bytes of every way to run a form on a GPU, and the time that they take.
    fn predicted(&self, output: &Output<'_>) -> String {
        let devices = self.ways.first().map_or(&[][..], |cost| &cost.predicted);
        let headings = ["form", "critical", "beside"].map(str::to_owned).into_iter();
        let mut table = Table::new(headings.chain(devices.iter().map(|device| device.device.clone())));
        for cost in &self.ways {
            let bytes = [cost.critical_bytes_per_param, cost.background_bytes_per_param];
            let times = cost.predicted.iter().map(|own| {
                let (critical, total) = (1e12 * own.critical_seconds_per_param, 1e12 * own.seconds_per_param);
                match total > critical {
                    true => format!("{critical:.1} ({total:.1})"),
                    false => format!("{critical:.1}"),
                }
            });
            let bytes = bytes.map(|bytes| format!("{bytes} B"));
            table.row([cost.label_on_gpu()].into_iter().chain(bytes).chain(times));
        }
        let text = "On a GPU (predicted, f32): bytes that a step moves per parameter on the critical path and beside it, while the gradient is computed; then picoseconds per parameter on the critical path, in parentheses with what is done beside it. ahead 8: one pass over the state makes 8 rows.";
        format!("{}\n\n{}", output.wrap(text), table.render(output))
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
            if let Some(fused) = form.fused_params_per_second {
                let moved = Moved::of(&form.form, Execution::fused(Dtype::F32)).total();
                table.row([
                    format!("{}, fused", form.name),
                    format!("{} B", form.state_bytes_per_param),
                    format!("{moved} B"),
                    format!("{fused:.2e}"),
                    rate(moved * fused / 1e9),
                    percent(moved * fused / machine.bytes_per_second),
                    bytes(form.state_bytes_per_param as f64 * self.model.params as f64),
                ]);
            }
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
            0 => {
                "; a form that is listed twice makes 8 rows, or 16, in one pass over its state where it is not fused"
            }
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
        for cost in self.ways.iter().filter(|cost| self.overheads.iter().any(|own| own.form == cost.form)) {
            let cell = |(device, _): &(&str, &str)| {
                self.overhead_of(cost, device).map_or_else(
                    || "-".into(),
                    |own| format!("{} ({})", percent(own.overhead), seconds(own.noise_seconds)),
                )
            };
            table.row([cost.label()].into_iter().chain(devices.iter().map(cell)));
        }
        let gradient = |(device, _): &(&str, &str)| {
            let own = self.overheads.iter().find(|overhead| overhead.device == *device);
            own.map_or_else(|| "-".into(), |overhead| seconds(overhead.gradient_seconds))
        };
        table.row(["gradient".to_owned()].into_iter().chain(devices.iter().map(gradient)));
        format!(
            "{}\n{}\n\n{}",
            output.wrap(&self.model.describe()),
            output.wrap("noise time on the critical path over gradient time, and that time of one step:"),
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
            "Relative cost of a banded strategy's noise: by operations only, b·m against 6·m·B·S; then with the time that memory takes, as measured, and as predicted from the {} per parameter that a GPU's fused kernel moves:",
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
