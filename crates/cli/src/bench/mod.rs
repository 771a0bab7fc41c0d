//! `bench`: what noise costs on this machine, and what share of a training step that is.

mod args;
mod budget;
mod cuda;
mod machine;
mod model;
mod report;
mod throughput;
pub mod traffic;
mod ways;

pub(crate) use args::BenchArgs;
pub(crate) use budget::Gpu;
pub use model::remark;
pub(crate) use throughput::{forms as bench_forms, median_of};

use crate::failure::{Failure, Outcome, Result};
use crate::output::Output;
use crate::parse::Device;
use crate::plot::overhead_picture::{self, Overheads};
use corrnoise::Dtype;
use corrnoise::planner::Execution;
use machine::Machine;
use model::Model;
use report::{Overhead, Remark, Report};
use ways::{WayCost, ways};

/// Bands of the remark on relative cost.
const REMARK_BANDS: usize = 100;

pub(crate) fn run(args: &BenchArgs, output: &mut Output<'_>) -> Result<Outcome> {
    check(args)?;
    let model = Model::new(args)?;
    let machine = match args.device {
        Device::Cpu | Device::Scalar => machine::measure(args)?,
        Device::Cuda(ordinal) => measure_cuda(args, ordinal)?,
        other => {
            return Err(Failure::value(
                "device",
                other,
                "one that can be measured: the CPU or a GPU with CUDA",
            ));
        }
    };
    let gpus: Vec<Gpu> = budget::known().into_iter().chain(args.machine.iter().cloned()).collect();
    if let Some(twice) = args
        .machine
        .iter()
        .enumerate()
        .find(|(i, gpu)| args.machine[..*i].iter().any(|other| other.name == gpu.name))
    {
        return Err(Failure::value("machine", &twice.1.name, "another name for each"));
    }
    let ways = ways(&machine.forms, &gpus);
    let overheads = overheads(&machine, &ways, &gpus, &model, args);
    let remarks = remarks(&machine, &gpus, args);
    let report = Report { machine, model, ways, overheads, remarks };
    if let Some(picture) = &args.plot {
        draw(&report, picture)?;
    }
    output.text(report.text(output))?;
    output.json(&report)?;
    Ok(Outcome::Passed)
}

fn check(args: &BenchArgs) -> Result<()> {
    if args.mfu <= 0.0 || args.mfu > 1.0 {
        return Err(Failure::value("mfu", args.mfu, "a share of the peak, above 0 and at most 1"));
    }
    if args.clipping_factor < 1.0 {
        return Err(Failure::value(
            "clipping factor",
            args.clipping_factor,
            "at least 1: clipping adds work",
        ));
    }
    match args.steps {
        Some(steps) if steps > 1000 => Err(Failure::value("steps", steps, "at most 1000")),
        _ => Ok(()),
    }
}

fn measure_cuda(args: &BenchArgs, ordinal: usize) -> Result<Machine> {
    // The library may have the engine because another package of the build asked for it; this program did not.
    match cfg!(feature = "cuda") {
        true => cuda::measure(args, ordinal),
        false => Err(crate::failure::without_cuda("--device cuda")),
    }
}

/// Noise time over gradient time, of every way to run a form, where it was measured and on the GPUs that are predicted. Only what lies on
/// the critical path counts.
fn overheads(
    machine: &Machine,
    ways: &[WayCost],
    gpus: &[Gpu],
    model: &Model,
    args: &BenchArgs,
) -> Vec<Overhead> {
    let mut list = Vec::new();
    let params = model.params as f64;
    for cost in ways.iter().filter(|cost| cost.form != remark_form()) {
        let own = machine.forms.iter().find(|form| form.name == cost.form);
        let rate = own.and_then(|form| form.measured(cost.way));
        if let (Some(flops), Some(rate)) = (machine.flops_per_second, rate) {
            let gradient = model.flops_per_step / flops;
            list.push(Overhead::new(cost, machine.device.clone(), "measured", params / rate, gradient));
        }
        for (gpu, predicted) in gpus.iter().zip(&cost.predicted) {
            let Some(peak) = gpu.peak_flops else { continue };
            let gradient = model.flops_per_step / (peak * args.mfu);
            let noise = params * predicted.critical_seconds_per_param;
            list.push(Overhead::new(cost, gpu.name.clone(), "predicted", noise, gradient));
        }
    }
    list
}

fn remark_form() -> String {
    format!("ring {REMARK_BANDS}")
}

/// The remark's two examples: by operations alone, then by what memory makes of them.
fn remarks(machine: &Machine, gpus: &[Gpu], args: &BenchArgs) -> Vec<Remark> {
    let ring = machine.forms.iter().find(|form| form.name == remark_form());
    let example = |seq: u64| {
        let (bands, batch) = (REMARK_BANDS as u64, 1000);
        let flops_per_param = model::FLOPS_PER_PARAM_AND_TOKEN * (batch * seq) as f64;
        let measured = ring.zip(machine.flops_per_second).map(|(ring, flops)| {
            (machine.device.clone(), "measured", 1.0 / ring.params_per_second / (flops_per_param / flops))
        });
        let predicted = gpus.iter().filter_map(|gpu| {
            let (kind, execution) = (throughput::Kind::Ring, Execution::fused(Dtype::F32));
            let noise = gpu.seconds_per_param(&ring?.form, REMARK_BANDS, kind, execution).critical;
            let gradient = flops_per_param / (gpu.peak_flops? * args.mfu);
            Some((gpu.name.clone(), "predicted", noise / gradient))
        });
        Remark {
            bands,
            batch,
            seq,
            flops_only: remark(bands, batch, seq),
            with_memory: measured.into_iter().chain(predicted).map(report::Share::from).collect(),
        }
    };
    vec![example(1000), example(1)]
}

fn draw(report: &Report, picture: &crate::parse::Picture) -> Result<()> {
    let devices = report.devices();
    let shares = |cost: &WayCost| {
        let of = |(device, _): &(&str, &str)| {
            report.overhead_of(cost, device).map_or(f64::NAN, |own| own.overhead)
        };
        devices.iter().map(of).collect::<Vec<f64>>()
    };
    let row = |cost: &WayCost| (cost.label(), shares(cost));
    let shown = report.ways.iter().filter(|cost| cost.form != remark_form());
    let overheads = Overheads {
        title: report.model.describe(),
        forms: shown.map(row).collect(),
        devices: devices.clone(),
    };
    overhead_picture::draw(&overheads, picture)
}
