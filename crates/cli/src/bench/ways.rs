//! The ways to run a form: in one fused pass per step, with rows made ahead, after `prepare`; what each moves, and what it takes on a GPU.

use super::budget::Gpu;
use super::throughput::Measured;
use corrnoise::Dtype;
use corrnoise::planner::{Execution, Moved};
use serde::Serialize;

/// How the rows of noise are made and added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// One pass makes a row and adds it.
    Fused,
    /// One pass makes several rows, another adds the one that is due.
    Ahead,
    /// The row was made before the step, which only adds it.
    Prepared,
}

impl Way {
    /// The way as tables and pictures name it.
    fn name(self) -> &'static str {
        match self {
            Way::Fused => "fused",
            Way::Ahead => "ahead",
            Way::Prepared => "prepared",
        }
    }
}

/// The cost of one way to run a form.
#[derive(Serialize)]
pub struct WayCost {
    pub form: String,
    pub way: Way,
    /// Rows that a GPU makes at a time.
    pub rows_ahead: usize,
    /// Bytes per parameter between the gradient's being ready and its having noise.
    pub critical_bytes_per_param: f64,
    /// Bytes per parameter that are moved while the gradient is computed.
    pub background_bytes_per_param: f64,
    pub predicted: Vec<Predicted>,
}

impl WayCost {
    /// The form and the way in one name, since tables repeat their first column where they are broken.
    pub fn label(&self) -> String {
        format!("{}, {}", self.form, self.way.name())
    }

    /// The name with the number of rows that a GPU makes at a time; the CPU engine has its own.
    pub fn label_on_gpu(&self) -> String {
        match self.rows_ahead {
            1 => self.label(),
            rows => format!("{} {rows}", self.label()),
        }
    }
}

/// The time of one way on one GPU.
#[derive(Serialize)]
pub struct Predicted {
    pub device: String,
    pub source: &'static str,
    /// The time on the critical path.
    pub critical_seconds_per_param: f64,
    /// The time with what is done beside it.
    pub seconds_per_param: f64,
}

/// Every way to run every form on a GPU, with f32 gradients.
pub fn ways(forms: &[Measured], gpus: &[Gpu]) -> Vec<WayCost> {
    let mut list = Vec::new();
    for measured in forms {
        let rows_ahead = Execution::rows_ahead_on_gpu(&measured.form);
        for way in [Way::Fused, Way::Ahead, Way::Prepared] {
            if way == Way::Ahead && rows_ahead == 1 {
                continue;
            }
            let rows_ahead = if way == Way::Fused { 1 } else { rows_ahead };
            let execution = Execution { gradient: Dtype::F32, rows_ahead, prepared: way == Way::Prepared };
            let moved = Moved::of(&measured.form, execution);
            let predict = |gpu: &Gpu| {
                let seconds = gpu.seconds_per_param(&measured.form, measured.bands, measured.kind, execution);
                Predicted {
                    device: gpu.name.clone(),
                    source: "predicted",
                    critical_seconds_per_param: seconds.critical,
                    seconds_per_param: seconds.total,
                }
            };
            list.push(WayCost {
                form: measured.name.clone(),
                way,
                rows_ahead,
                critical_bytes_per_param: moved.critical,
                background_bytes_per_param: moved.background,
                predicted: gpus.iter().map(predict).collect(),
            });
        }
    }
    list
}
