//! Which form a module's kernels run, and how many rows they make ahead.

use corrnoise::form::{Kernel, Ring};
use corrnoise::{Error, Form, Result};

/// The kind of form that a module of `crates/cuda/ptx/` runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runs {
    Blt(usize),
    Ring { bf16: bool },
    Regenerate,
}

impl Runs {
    /// The form of a module's kernels, and how many rows they make ahead; none for fused kernels.
    pub(super) fn of(module: &str) -> Result<(Runs, Option<usize>)> {
        // The same form, on GPUs of compute capability 8.0 and newer.
        let module = module.strip_suffix("_80").unwrap_or(module);
        let (form, rows) = match module.strip_prefix("make_") {
            Some("ring16") => ("ring", Some(16)),
            Some("ring8") => ("ring", Some(8)),
            Some(form) => (form, Some(8)),
            None if module == "add" => ("ring", Some(8)),
            None => (module, None),
        };
        match (form, form.strip_prefix("blt").map(str::parse)) {
            (_, Some(Ok(buffers))) => Ok((Runs::Blt(buffers), rows)),
            ("ring", _) => Ok((Runs::Ring { bf16: false }, rows)),
            ("ring_bf16", _) => Ok((Runs::Ring { bf16: true }, rows)),
            ("regenerate", _) => Ok((Runs::Regenerate, rows)),
            _ => Err(Error::parameter("module", module, "one of crates/cuda/ptx")),
        }
    }

    /// A form of this kind: a ring has `slots` slots, a regenerated sum as many terms and one more.
    pub(super) fn form(self, slots: usize) -> Result<Form> {
        let weight = |i: usize| 0.9 / (1.3 + i as f64);
        match self {
            Runs::Blt(buffers) => {
                let scale = [0.21, 0.11, 0.07, 0.04, 0.022, 0.011, 0.005, 0.0012];
                let decay = [0.13, 0.49, 0.76, 0.89, 0.952, 0.981, 0.9937, 0.9989];
                Form::blt(&scale[..buffers], &decay[..buffers])
            }
            Runs::Ring { bf16 } => {
                let coefs: Vec<f64> = (0..slots).map(|i| 0.4 * weight(i)).collect();
                history(Kernel::Ring(Ring::toeplitz(&coefs)?).into(), bf16)
            }
            Runs::Regenerate => Form::regenerate(&(0..=slots).map(weight).collect::<Vec<_>>()),
        }
    }
}

/// The form with a history in bf16, set through its file format so that this compiles for forms without that choice.
fn history(form: Form, bf16: bool) -> Result<Form> {
    if !bf16 {
        return Ok(form);
    }
    let wrong = |error: serde_json::Error| Error::parameter("form", error, "one with a history in bf16");
    let mut json = serde_json::to_value(&form).map_err(wrong)?;
    json["kernel"]["history"] = "bf16".into();
    serde_json::from_value(json).map_err(wrong)
}
