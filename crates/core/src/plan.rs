//! The plan: all that the online half needs to know, in a file that holds its own fingerprint.
//!
//! A plan holds no secret. Its fingerprint covers every number that shapes the noise; keys and checkpoints are bound to it. The
//! fingerprint detects damage and names the plan, but is no signature: anyone can compute it. Whether a claim holds, the planner checks.

mod check_certificate;
pub(crate) mod grid_exponent;
#[cfg(test)]
mod tests;

use crate::chacha::Rounds;
use crate::error::{Error, Result};
use crate::file::{Access, write_atomically};
use crate::form::Form;
use crate::grid::Grid;
use crate::row::Row;
use crate::sampler::Sampling;
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::path::Path;

/// The version of the plan's file format.
const PLAN_VERSION: u64 = 2;

/// The largest plan file that is read. A plan of thousands of dense rows has 70 MB and two million values, and a value takes up to 64 bytes
/// while it is parsed: with this limit and the next, reading any file takes less than a gigabyte.
const MOST_BYTES: u64 = 200_000_000;
const MOST_VALUES: usize = 8_000_000;

/// The version of the noise specification that this crate implements (`docs/noise-spec.md`).
pub const NOISE_SPEC_VERSION: u32 = 2;

/// A calibrated mechanism: how many steps, which form, how much noise.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    body: Body,
    fingerprint: Fingerprint,
}

/// 32 bytes that name a plan, a layout or a key without revealing it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl std::fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    noise_spec: u32,
    steps: u64,
    rounds: Rounds,
    stddev: f64,
    grid_exponent: i32,
    form: Form,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sampling: Option<Sampling>,
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "sorted")]
    certificate: Option<Certificate>,
}

/// The planner's claim about a plan, and its reasons: JSON that this crate keeps and binds to the noise. The crate reads only for how much
/// noise the claim was made, and refuses a plan that has another amount.
pub type Certificate = serde_json::Map<String, serde_json::Value>;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    corrnoise_plan: u64,
    fingerprint: String,
    plan: Body,
}

/// The entry of a plan file that every version has.
#[derive(Deserialize)]
struct Head {
    corrnoise_plan: u64,
}

/// Why a plan of another version is of no use, and what to do about it.
fn other_version(what: &str, version: u64) -> String {
    let remedy = match version < PLAN_VERSION {
        true => "make it again with `corrnoise plan`",
        false => "read it with the library that made it",
    };
    format!("{what} version {version}, and this library implements version {PLAN_VERSION}: {remedy}")
}

impl Plan {
    /// A plan with 12 rounds. `stddev` is that of the i.i.d. noise `Z`: row `t` of the gradient receives
    /// `stddev · output_scale(t) · z̃_t`.
    pub fn new(num_steps: u64, form: Form, stddev: f64) -> Result<Plan> {
        check_steps(num_steps)?;
        check_stddev(stddev)?;
        Body {
            noise_spec: NOISE_SPEC_VERSION,
            steps: num_steps,
            rounds: Rounds::default(),
            stddev,
            grid_exponent: form
                .check_steps(num_steps)
                .and_then(|()| grid_exponent::choose(num_steps, &form, stddev))
                .map(|(preferred, _)| preferred)?,
            form,
            sampling: None,
            certificate: None,
        }
        .seal()
    }

    /// The same plan with another number of ChaCha rounds.
    pub fn with_rounds(self, rounds: Rounds) -> Result<Plan> {
        Body { rounds, ..self.body }.seal()
    }

    /// The same plan on the finest output grid that its noise allows: comparisons of engines want every digit of the noise to show, which
    /// releases do not.
    pub fn with_finest_grid(self) -> Result<Plan> {
        let (_, exponents) = grid_exponent::choose(self.body.steps, &self.body.form, self.body.stddev)?;
        Body { grid_exponent: *exponents.start(), ..self.body }.seal()
    }

    /// The same plan, for batches that are chosen in this way.
    pub fn with_sampling(self, sampling: Sampling) -> Result<Plan> {
        Body { sampling: Some(sampling), ..self.body }.seal()
    }

    /// The same plan with a certificate: numbers in it must be finite, and its `claim.noise_multiplier`, `clip_norm` and
    /// `claim.sensitivity` multiply to this plan's standard deviation.
    pub fn with_certificate(self, certificate: Certificate) -> Result<Plan> {
        Body { certificate: Some(certificate), ..self.body }.seal()
    }

    /// Reads a plan and checks that its fingerprint is that of its content, and its noise that of its certificate.
    pub fn load(path: impl AsRef<Path>) -> Result<Plan> {
        let path = path.as_ref();
        let fail = || Error::io("read plan", path);
        let file = std::fs::File::open(path).map_err(fail())?;
        let refuse = |bytes: String| Error::Plan(format!("{bytes} bytes: expected at most {MOST_BYTES}"));
        let bytes = file.metadata().map_err(fail())?.len();
        if bytes > MOST_BYTES {
            return Err(refuse(bytes.to_string()));
        }
        // A device has no length, and some have no end.
        let mut text = String::new();
        let read = file.take(MOST_BYTES + 1).read_to_string(&mut text).map_err(fail())?;
        if read as u64 > MOST_BYTES {
            return Err(refuse(format!("more than {MOST_BYTES}")));
        }
        Plan::from_json(&text)
    }

    /// Writes the plan; the file appears whole or not at all.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let write = |file: &mut dyn std::io::Write| file.write_all(self.to_json().as_bytes());
        write_atomically(path, Access::Usual, |file| write(file).map_err(Error::io("write", path)))
    }

    /// Parses a plan and checks it, as [`Plan::load`] does.
    pub fn from_json(text: &str) -> Result<Plan> {
        let refuse = |error: serde_json::Error| Error::Plan(error.to_string());
        let values = text.bytes().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count();
        if values > MOST_VALUES {
            return Err(Error::Plan(format!("{values} values: expected at most {MOST_VALUES}")));
        }
        // The version comes first: keys of another one are unknown here, and say less.
        if let Ok(Head { corrnoise_plan: version }) = serde_json::from_str(text)
            && version != PLAN_VERSION
        {
            return Err(Error::Plan(other_version("it was made by", version)));
        }
        let file: File = serde_json::from_str(text).map_err(refuse)?;
        let plan = file.plan.seal()?;
        if plan.fingerprint.to_string() != file.fingerprint {
            return Err(Error::Plan(format!(
                "its fingerprint is {} but its content has {}: the file was edited or damaged",
                file.fingerprint, plan.fingerprint
            )));
        }
        // After the fingerprint, which tells an edited file by its cause.
        let Body { steps, ref form, stddev, grid_exponent: stated, .. } = plan.body;
        let (_, exponents) = grid_exponent::choose(steps, form, stddev)?;
        if !exponents.contains(&stated) {
            let (finest, coarsest) = exponents.into_inner();
            let expected = format!("{finest} to {coarsest}, which the noise's scale asks for");
            return Err(Error::parameter("grid_exponent", stated, expected));
        }
        Ok(plan)
    }

    /// The plan as JSON text.
    pub fn to_json(&self) -> String {
        let file = File {
            corrnoise_plan: PLAN_VERSION,
            fingerprint: self.fingerprint.to_string(),
            plan: self.body.clone(),
        };
        serde_json::to_string_pretty(&file).expect("a plan holds only finite numbers and string keys") + "\n"
    }

    /// The number of steps of the plan.
    pub fn num_steps(&self) -> u64 {
        self.body.steps
    }

    /// The number of ChaCha rounds.
    pub fn rounds(&self) -> Rounds {
        self.body.rounds
    }

    /// The standard deviation of `Z`.
    pub fn stddev(&self) -> f64 {
        self.body.stddev
    }

    /// The form that noise is made in.
    pub fn form(&self) -> &Form {
        &self.body.form
    }

    /// The sampling scheme of batches, if the plan names one.
    pub fn sampling(&self) -> Option<Sampling> {
        self.body.sampling
    }

    /// True if a [`Sampler`](crate::Sampler) draws the batch of every step; the claim then holds for those batches only. False where
    /// participants come by themselves, and where the plan says nothing of batches.
    pub fn draws_batches(&self) -> bool {
        self.body.sampling.is_some_and(|sampling| sampling.dataset_size().is_some())
    }

    /// The planner's claim about this plan, if it has one.
    pub fn certificate(&self) -> Option<&Certificate> {
        self.body.certificate.as_ref()
    }

    /// The fingerprint that names this plan.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The factor on row `step`, formed in f64 and rounded once.
    ///
    /// # Panics
    /// If scales are given per step and there is no such step.
    pub fn scale(&self, step: u64) -> f32 {
        scale(&self.body.form, self.body.stddev, step)
    }

    /// The exponent `k` of the output grid Γ = 2^k: every released value is a multiple of Γ.
    pub fn grid_exponent(&self) -> i32 {
        self.body.grid_exponent
    }

    /// About the largest standard deviation of the noise in one value, and of the sums that it is formed by, in units of the grid.
    pub fn largest_noise(&self) -> f64 {
        let Body { steps, form, stddev, grid_exponent, .. } = &self.body;
        // A plan was checked when it was sealed.
        let largest = grid_exponent::scales(*steps, form, *stddev).map_or(f64::NAN, |(_, largest)| largest);
        largest * 2.0_f64.powi(-grid_exponent)
    }

    /// The numbers with which the noise of a step is added on the output grid.
    ///
    /// # Panics
    /// If scales are given per step and there is no such step.
    pub fn grid(&self, step: u64) -> Grid {
        Grid::new(self.body.grid_exponent, self.scale(step))
    }
}

fn check_steps(steps: u64) -> Result<()> {
    match (1..=Row::INDEX_LIMIT).contains(&steps) {
        true => Ok(()),
        false => Err(Error::parameter("steps", steps, "1 to 2^40 = 1099511627776")),
    }
}

fn check_stddev(stddev: f64) -> Result<()> {
    match stddev.is_finite() && stddev > 0.0 {
        true => Ok(()),
        false => Err(Error::parameter("stddev", stddev, "finite and above 0")),
    }
}

fn scale(form: &Form, stddev: f64, step: u64) -> f32 {
    (stddev * form.output_scale(step)) as f32
}

impl Body {
    fn seal(self) -> Result<Plan> {
        if self.noise_spec != NOISE_SPEC_VERSION {
            return Err(Error::Plan(other_version("its noise specification has", self.noise_spec.into())));
        }
        check_steps(self.steps)?;
        check_stddev(self.stddev)?;
        if let Some(certificate) = &self.certificate {
            check_certificate::check(self.stddev, certificate)?;
        }
        self.form.check_steps(self.steps)?;
        self.sampling.map_or(Ok(()), |sampling| sampling.check())?;
        let fingerprint = self.fingerprint();
        Ok(Plan { body: self, fingerprint })
    }

    /// BLAKE3 of the plan as compact JSON in which every float is the 16 hex digits of its bits: it does not depend on how a
    /// JSON library prints decimals.
    fn fingerprint(&self) -> Fingerprint {
        let mut hasher = blake3::Hasher::new_derive_key("corrnoise 2026 plan fingerprint v1");
        let mut writer = serde_json::Serializer::with_formatter(&mut hasher, FloatBits);
        self.serialize(&mut writer).expect("hashing cannot fail");
        Fingerprint(hasher.finalize().into())
    }
}

/// Writes keys in ascending order at every level, whatever order the build's JSON maps keep: the fingerprint is taken of this.
fn sorted<S: serde::Serializer>(
    certificate: &Option<Certificate>,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    struct Sorted<'a>(&'a serde_json::Value);
    impl Serialize for Sorted<'_> {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
            match self.0 {
                serde_json::Value::Object(map) => serializer.collect_map(ascending(map)),
                serde_json::Value::Array(list) => serializer.collect_seq(list.iter().map(Sorted)),
                other => other.serialize(serializer),
            }
        }
    }
    fn ascending(map: &Certificate) -> std::collections::BTreeMap<&String, Sorted<'_>> {
        map.iter().map(|(key, value)| (key, Sorted(value))).collect()
    }
    match certificate {
        Some(map) => serializer.collect_map(ascending(map)),
        None => serializer.serialize_none(),
    }
}

struct FloatBits;

impl serde_json::ser::Formatter for FloatBits {
    fn write_f64<W: ?Sized + std::io::Write>(&mut self, writer: &mut W, value: f64) -> std::io::Result<()> {
        write!(writer, "{:016x}", value.to_bits())
    }
}
