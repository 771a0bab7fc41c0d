//! What a training step costs: parameters, and operations of the gradient.

use super::args::{BenchArgs, Preset};
use crate::failure::{Failure, Result};
use crate::table::counted;
use serde::Serialize;

/// Forward pass 2 (a multiply and an add), backward pass twice that.
pub const FLOPS_PER_PARAM_AND_TOKEN: f64 = 6.0;

/// A model, a batch and what its gradient costs.
#[derive(Serialize)]
pub struct Model {
    pub name: String,
    pub params: u64,
    pub batch: u64,
    /// Absent where examples are not sequences.
    pub seq: Option<u64>,
    pub clipping_factor: f64,
    pub flops_per_step: f64,
}

/// A known model. Where its layers do not use every parameter once per token, the multiply-adds of a forward pass are given.
struct Known {
    params: u64,
    seq: Option<u64>,
    multiply_adds: Option<f64>,
}

fn known(preset: Preset) -> Known {
    match preset {
        // He et al. 2016 (arXiv:1512.03385); 25.6 M parameters and 4.1 G multiply-adds at 224² (torchvision's table for resnet50).
        Preset::Resnet50 => Known { params: 25_557_032, seq: None, multiply_adds: Some(4.09e9) },
        // Dosovitskiy et al. 2021 (arXiv:2010.11929): ViT-B/16 at 224², 197 tokens; 17.6 G multiply-adds (torchvision, vit_b_16).
        Preset::VitB => Known { params: 86_567_656, seq: None, multiply_adds: Some(17.56e9) },
        // Radford et al. 2019: the smallest GPT-2, 124 M parameters, context 1024.
        Preset::Gpt2 => Known { params: 124_439_808, seq: Some(1024), multiply_adds: None },
        // Touvron et al. 2023 (arXiv:2307.09288): 6.74 B parameters, context 4096.
        Preset::Llama7b => Known { params: 6_738_415_616, seq: Some(4096), multiply_adds: None },
        // Naumov et al. 2019 (arXiv:1906.00091) as in MLPerf: 26 tables of 128 columns, 188 M rows in all with at most 40 M a table; bottom
        // layers 13-512-256-128, top 479-1024-1024-512-256-1, 27·26/2 dot products of 128: 2.4 M multiply-adds an example. An example
        // reads 26 rows, but noise falls on all of them.
        Preset::Dlrm => Known { params: 24_030_000_000, seq: None, multiply_adds: Some(2.41e6) },
    }
}

impl Model {
    /// The model that was asked for; GPT-2 if none was.
    pub fn new(args: &BenchArgs) -> Result<Model> {
        let preset = args.preset.or_else(|| args.params.is_none().then_some(Preset::Gpt2));
        let (name, model) = match (preset, args.params) {
            (Some(preset), _) => (preset_name(preset), known(preset)),
            (None, params) => {
                ("model".into(), Known { params: params.unwrap_or(1), seq: Some(1), multiply_adds: None })
            }
        };
        if let (Some(seq), Some(_)) = (args.seq, model.multiply_adds) {
            return Err(Failure::value(
                "seq",
                seq,
                format!("none: the cost of an example of {name} is known; leave --seq out"),
            ));
        }
        let seq = args.seq.or(model.seq);
        let multiply_adds = model.multiply_adds.unwrap_or(model.params as f64 * seq.unwrap_or(1) as f64);
        let flops_per_step =
            FLOPS_PER_PARAM_AND_TOKEN * multiply_adds * args.batch as f64 * args.clipping_factor;
        Ok(Model {
            name,
            params: model.params,
            batch: args.batch,
            seq,
            clipping_factor: args.clipping_factor,
            flops_per_step,
        })
    }

    /// One line for people.
    pub fn describe(&self) -> String {
        let seq = self.seq.map_or_else(String::new, |seq| format!(" of {}", counted(seq, "token")));
        let params = match self.params {
            params @ ..10_000 => counted(params, "parameter"),
            params => format!("{:.3e} parameters", params as f64),
        };
        let (name, batch) = (&self.name, counted(self.batch, "example"));
        format!("{name}: {params}, {batch}{seq}, {:.2e} operations a step", self.flops_per_step)
    }
}

fn preset_name(preset: Preset) -> String {
    use clap::ValueEnum;
    preset.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Noise over gradient by operations alone: `bands·m` multiply-adds against `6·m·B·S`, as a share.
///
/// The monograph's remark counts a multiply-add of the noise as one and says "≤ 0.01%" and "~10%" for its two examples; the
/// formula gives 0.0017% and 1.7%.
///
/// ```
/// let share = corrnoise_cli::remark(100, 1000, 1000);
/// assert_eq!(format!("{:.4}%", 100.0 * share), "0.0017%");
/// assert_eq!(format!("{:.1}%", 100.0 * corrnoise_cli::remark(100, 1000, 1)), "1.7%");
/// ```
pub fn remark(bands: u64, batch: u64, seq: u64) -> f64 {
    bands as f64 / (FLOPS_PER_PARAM_AND_TOKEN * batch as f64 * seq as f64)
}
