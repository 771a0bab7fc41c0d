//! `bench`: what noise costs on this machine, and what share of a training step that is.

mod args;
mod budget;
#[cfg(feature = "cuda")]
mod cuda;
mod machine;
mod model;
mod report;
mod throughput;
pub mod traffic;

pub(crate) use args::BenchArgs;
pub use model::remark;

use crate::failure::{Failure, Outcome, Result};
use crate::output::Output;
use crate::parse::Device;
use crate::plot::overhead_picture::{self, Overheads};
use machine::Machine;
use model::Model;
use report::{Overhead, Remark, Report};
use throughput::Measured;

/// Bands of the remark on relative cost.
const REMARK_BANDS: usize = 100;

pub(crate) fn run(args: &BenchArgs, output: &mut Output<'_>) -> Result<Outcome> {
    check(args)?;
    let model = Model::new(args)?;
    let machine = match args.device {
        Device::Cpu | Device::Scalar => machine::measure(args)?,
        Device::Cuda(ordinal) => measure_cuda(args, ordinal)?,
    };
    let overheads = overheads(&machine, &model, args);
    let remarks = remarks(&machine, args);
    let report = Report { machine, model, overheads, remarks };
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

#[cfg(feature = "cuda")]
fn measure_cuda(args: &BenchArgs, ordinal: usize) -> Result<Machine> {
    cuda::measure(args, ordinal)
}

#[cfg(not(feature = "cuda"))]
fn measure_cuda(_: &BenchArgs, _: usize) -> Result<Machine> {
    Err(crate::failure::without_cuda("--device cuda"))
}

/// Noise time over gradient time, of every form, where it was measured and on the GPUs that are predicted.
fn overheads(machine: &Machine, model: &Model, args: &BenchArgs) -> Vec<Overhead> {
    let mut list = Vec::new();
    for form in machine.forms.iter().filter(|form| form.name != remark_form()) {
        let params = model.params as f64;
        if let Some(flops) = machine.flops_per_second {
            let noise = params / form.params_per_second;
            list.push(Overhead::new(
                form.name.clone(),
                machine.device.clone(),
                "measured",
                noise,
                model.flops_per_step / flops,
            ));
        }
        for gpu in &budget::GPUS {
            let noise = params * gpu.seconds_per_param(form.bands, form.kind);
            let gradient = model.flops_per_step / (gpu.peak_flops * args.mfu);
            list.push(Overhead::new(form.name.clone(), gpu.name.into(), "predicted", noise, gradient));
        }
    }
    list
}

fn remark_form() -> String {
    format!("ring {REMARK_BANDS}")
}

/// The remark's two examples: by operations alone, then by what memory makes of them.
fn remarks(machine: &Machine, args: &BenchArgs) -> Vec<Remark> {
    let ring = machine.forms.iter().find(|form| form.name == remark_form());
    let example = |seq: u64| {
        let (bands, batch) = (REMARK_BANDS as u64, 1000);
        let flops_per_param = model::FLOPS_PER_PARAM_AND_TOKEN * (batch * seq) as f64;
        let measured = ring.zip(machine.flops_per_second).map(|(ring, flops)| {
            (machine.device.clone(), "measured", 1.0 / ring.params_per_second / (flops_per_param / flops))
        });
        let predicted = budget::GPUS.iter().map(|gpu| {
            let noise = gpu.seconds_per_param(REMARK_BANDS, throughput::Kind::Ring);
            (gpu.name.to_owned(), "predicted", noise / (flops_per_param / (gpu.peak_flops * args.mfu)))
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
    let forms = report.machine.forms.iter().filter(|form| form.name != remark_form());
    let shares = |form: &Measured| {
        let of = |(device, _): &(&str, &str)| {
            let own = report.overheads.iter().find(|o| o.form == form.name && o.device == *device);
            own.map_or(f64::NAN, |overhead| overhead.overhead)
        };
        devices.iter().map(of).collect::<Vec<f64>>()
    };
    let overheads = Overheads {
        title: report.model.describe(),
        forms: forms.map(|form| (form.name.as_str(), shares(form))).collect(),
        devices: devices.clone(),
    };
    overhead_picture::draw(&overheads, picture)
}
