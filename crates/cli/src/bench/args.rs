//! The options of `bench`.

use super::budget::{Gpu, known};
use crate::parse::{self, Device, Picture};
use clap::{Args, ValueEnum};

/// Models whose step costs are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Preset {
    Resnet50,
    VitB,
    Gpt2,
    #[value(name = "llama-7b")]
    Llama7b,
    Dlrm,
}

/// What noise costs: throughput of every form, and its share of a training step
///
/// Measures this machine: noise of every form, memory traffic of the same shape, a matrix multiply. Then the share of a step's time that
/// noise takes for a model of M parameters and B examples of S tokens, whose gradient costs 6·M·B·S operations: here by
/// measurement, on an A100, an H100, a B200 and machines of your own numbers from the kernels' budget (kernels/BUDGET.md), the bytes that every way to make
/// the noise moves and the makers' peak rates; not measured there. Last, the same by counting operations only, as the literature does.
///
/// There are three ways to make a row. Fused: the step makes it and adds it. Ahead: one pass over the state makes several rows, and the step adds the one
/// that is due. Prepared: `prepare` makes the row while the gradient is computed, and the step, on the critical path, only adds it.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  corrnoise bench
  corrnoise bench --preset llama-7b --batch 1024 --plot overhead.svg
  corrnoise bench --params 1e8 --seq 1 --batch 4096 --quick --json
  corrnoise bench --machine L40S:gbps=864,sms=142,ghz=2.52,tflops=362")]
pub(crate) struct BenchArgs {
    /// Parameters of the model
    #[arg(long, value_name = "M", value_parser = parse::count, allow_negative_numbers = true, conflicts_with = "preset")]
    pub params: Option<u64>,
    /// A model whose step costs are known
    #[arg(long, value_name = "NAME")]
    pub preset: Option<Preset>,
    /// Examples in a step
    #[arg(long, value_name = "B", default_value = "1000", value_parser = parse::count, allow_negative_numbers = true)]
    pub batch: u64,
    /// Tokens per example; the preset's own by default, else 1
    #[arg(long, value_name = "S", value_parser = parse::count, allow_negative_numbers = true)]
    pub seq: Option<u64>,
    /// Timed steps of every form; the median counts
    #[arg(long, value_name = "K", value_parser = parse::count, allow_negative_numbers = true)]
    pub steps: Option<u64>,
    /// Operations of a step with per-example clipping over those without: 1 to about 2, by method
    #[arg(long, value_name = "FACTOR", default_value = "1.0", value_parser = parse::number, allow_negative_numbers = true)]
    pub clipping_factor: f64,
    /// Share of a GPU's peak that training reaches, between 0 and 1
    #[arg(long, value_name = "SHARE", default_value = "0.45", value_parser = parse::number, allow_negative_numbers = true)]
    pub mfu: f64,
    #[arg(long, value_name = "DEVICE", default_value = "cpu", value_parser = parse::device)]
    #[arg(help = format!("Where to measure: {}", Device::help()))]
    pub device: Device,
    /// A GPU to predict too, by its numbers: NAME:gbps=BANDWIDTH,sms=MULTIPROCESSORS,ghz=CLOCK and, for its share of a step, tflops=PEAK (bf16 without sparsity). May be repeated
    #[arg(long, value_name = "SPEC", value_parser = machine)]
    pub machine: Vec<Gpu>,
    /// Fewer parameters and fewer timed steps: seconds, and rougher numbers
    #[arg(long)]
    pub quick: bool,
    /// Draw the share of a step that every form takes: FILE.svg or FILE.png
    #[arg(long, value_name = "FILE", value_parser = parse::picture)]
    pub plot: Option<Picture>,
}

/// A GPU in the notation of `--machine`.
fn machine(text: &str) -> Result<Gpu, String> {
    let refuse =
        |why: &str| format!("{why}; expected NAME:gbps=864,sms=142,ghz=2.52 with tflops=362 or without");
    let (name, list) = text.split_once(':').ok_or_else(|| refuse("there is no name before a colon"))?;
    if name.trim().is_empty() || known().iter().any(|gpu| gpu.name == name) {
        return Err(refuse("the name must be a new one"));
    }
    let mut values = [None; 4];
    for entry in list.split(',') {
        let (key, value) = entry.split_once('=').ok_or_else(|| refuse(&format!("{entry:?} has no value")))?;
        let keys = ["gbps", "sms", "ghz", "tflops"];
        let at = keys.iter().position(|known| *known == key.trim());
        let at = at.ok_or_else(|| refuse(&format!("{:?} is no such number", key.trim())))?;
        let number = parse::number(value.trim()).ok().filter(|number| *number > 0.0 && number.is_finite());
        let number = number.ok_or_else(|| refuse(&format!("{key} is {value}, not a number above 0")))?;
        if values[at].replace(number).is_some() {
            return Err(refuse(&format!("{key} is given twice")));
        }
    }
    match values {
        [Some(gbps), Some(sms), Some(ghz), tflops] => {
            Ok(Gpu::new(name.trim().to_owned(), tflops.map(|t| 1e12 * t), 1e9 * gbps, sms, 1e9 * ghz))
        }
        _ => Err(refuse("gbps, sms and ghz are all needed")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_have_all_their_numbers() {
        let gpu = machine("L40S:gbps=864,sms=142,ghz=2.52,tflops=362").unwrap();
        assert_eq!((gpu.name.as_str(), gpu.bandwidth, gpu.peak_flops), ("L40S", 864e9, Some(362e12)));
        assert_eq!((gpu.multiprocessors, gpu.clock_hz), (142.0, 2.52e9));
        assert_eq!(machine("x:ghz=1,gbps=2,sms=3").unwrap().peak_flops, None);
        for (text, why) in [
            ("gbps=1,sms=2,ghz=3", "name"),
            (":gbps=1,sms=2,ghz=3", "name"),
            ("B200:gbps=1,sms=2,ghz=3", "new"),
            ("x:gbps=1,sms=2", "needed"),
            ("x:gbps=1,sms=2,ghz", "\"ghz\""),
            ("x:gbps=0,sms=2,ghz=3", "above 0"),
            ("x:gbps=nan,sms=2,ghz=3", "above 0"),
            ("x:gbps=1,gbps=1,sms=2,ghz=3", "twice"),
            ("x:gbps=1,sms=2,ghz=3,watts=4", "watts"),
        ] {
            let refused = machine(text).err().unwrap_or_default();
            assert!(refused.contains(why) && refused.contains("NAME:gbps=864"), "{text}: {refused}");
        }
    }
}
