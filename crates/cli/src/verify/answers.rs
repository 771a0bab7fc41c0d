//! Known answers: the reference functions and both CPU engines against the vectors of the noise specification.

use super::Finding;
use crate::failure::{Failure, Result};
use corrnoise::backend::{Add, Backend, Step, StepKernel};
use corrnoise::chacha::ChaCha;
use corrnoise::vectors::{self, Vector};
use corrnoise::{
    Cpu, CpuOptions, Dtype, Element, Form, Gradients, Isa, Plan, RunKey, Shard, gauss, noise, reference,
    with_element,
};

const ENGINES: [(Isa, &str); 2] = [(Isa::Scalar, "scalar engine"), (Isa::Auto, "fastest engine")];

/// Compares line by line and names the first that differs.
struct Tally {
    lines: usize,
    first: Option<String>,
}

impl Tally {
    fn new() -> Tally {
        Tally { lines: 0, first: None }
    }

    fn compare<T: PartialEq>(&mut self, vector: &Vector, who: &str, got: &[T], expected: &[T]) {
        if got != expected && self.first.is_none() {
            self.first = Some(format!("{} differs ({who})", vector.place));
        }
    }

    fn finding(self, who: &str) -> Result<Finding> {
        Ok(match self.first {
            Some(first) => Finding::new(false, first),
            None => Finding::new(true, format!("{} vectors: {who}", self.lines)),
        })
    }
}

pub fn keystream(_: bool) -> Result<Finding> {
    let mut tally = Tally::new();
    for vector in vectors::read(vectors::CHACHA)? {
        let cipher = ChaCha::new(&vector.key()?, vector.rounds()?);
        match vector.kind {
            "block" => {
                let words = cipher.block(vector.hex("stream")?, vector.hex("block")?);
                tally.compare(&vector, "reference", &words, &vector.words("words")?);
            }
            "keystream" => {
                let nonce = vector.bytes("nonce")?.try_into().map_err(|_| vector.unknown())?;
                let expected = vector.bytes("bytes")?;
                let blocks = (0..expected.len() as u64 / 64)
                    .map(|block| cipher.block(u64::from_le_bytes(nonce), block));
                let bytes: Vec<u8> = blocks.flatten().flat_map(u32::to_le_bytes).collect();
                tally.compare(&vector, "reference", &bytes, &expected);
            }
            _ => return Err(vector.unknown().into()),
        }
        tally.lines += 1;
    }
    tally.finding("reference")
}

pub fn words_to_normals(_: bool) -> Result<Finding> {
    let mut tally = Tally::new();
    for vector in vectors::read(vectors::GAUSS)? {
        let word = |name| Ok::<_, Failure>(vector.hex(name)? as u32);
        let (got, expected) = match vector.kind {
            "radius" => (vec![gauss::radius(word("word")?)], vector.words("bits")?),
            "tail" => match vector.words("words")?[..] {
                [word, first, second] => {
                    (vec![gauss::tail_radius(word, first, second)], vector.words("bits")?)
                }
                _ => return Err(vector.unknown().into()),
            },
            "angle" => {
                let (sin, cos) = gauss::sin_cos(word("word")?);
                (vec![sin, cos], [vector.words("sin")?, vector.words("cos")?].concat())
            }
            "pair" => {
                let (first, second) =
                    gauss::normals(gauss::radius(word("radius_word")?), word("angle_word")?);
                (vec![first, second], vector.words("bits")?)
            }
            _ => return Err(vector.unknown().into()),
        };
        let got: Vec<u32> = got.iter().map(|value| value.to_bits()).collect();
        tally.compare(&vector, "reference", &got, &expected);
        tally.lines += 1;
    }
    tally.finding("reference")
}

fn engine(isa: Isa, keys: &[RunKey], plan: &Plan, coords: std::ops::Range<u64>) -> Result<Cpu> {
    let shard = Shard::whole(coords.end)?.within(coords)?;
    Ok(Cpu::new(plan, keys, &shard, CpuOptions { threads: 1, isa, ..CpuOptions::default() })?)
}

/// One step of an engine on a zero gradient: what it added, as bits.
fn added(cpu: &mut Cpu, step: &Step<'_>, len: usize) -> Result<Vec<u32>> {
    let mut out = vec![0.0_f32; len];
    cpu.step(step, Gradients::new(&mut [&mut out[..]]))?;
    Ok(out.iter().map(|value| value.to_bits()).collect())
}

pub fn normals(_: bool) -> Result<Finding> {
    let mut tally = Tally::new();
    for vector in vectors::read(vectors::NORMALS)? {
        let (first, expected) = (vector.decimal("coord")?, vector.words("bits")?);
        let (row, coords) = (vector.row()?, first..first + expected.len() as u64);
        let cipher = ChaCha::new(&vector.key()?, vector.rounds()?);
        let got: Vec<u32> =
            coords.clone().map(|coord| noise::normal(&cipher, row, coord).to_bits()).collect();
        tally.compare(&vector, "reference", &got, &expected);
        let plan = Plan::new(1, Form::independent(), 1.0)?.with_rounds(vector.rounds()?)?;
        let key = vector.key()?;
        // One key for all incarnations, so that any incarnation in the row's name is known.
        let keys: Vec<_> = (0..=row.incarnation()).map(|_| RunKey::from_bytes(key)).collect();
        for (isa, name) in ENGINES {
            let kernel = StepKernel::Regenerate { terms: &[(row, 1.0)] };
            let step = Step { number: 0, add: Add::Plain(1.0), dither: row, kernel };
            let got = added(&mut engine(isa, &keys, &plan, coords.clone())?, &step, expected.len())?;
            tally.compare(&vector, name, &got, &expected);
        }
        tally.lines += 1;
    }
    tally.finding("reference, scalar, fastest engine")
}

pub fn forms(_: bool) -> Result<Finding> {
    let mut tally = Tally::new();
    for vector in vectors::read(vectors::FORMS)? {
        let (coord, expected) = (vector.decimal("coord")?, vector.words("bits")?);
        let steps = expected.len() as u64;
        let form: Form = serde_json::from_str(vector.text("form")?).map_err(|_| vector.unknown())?;
        let (incarnations, keys) = vector.incarnations()?;
        let rounds = vector.rounds()?;
        let ciphers: Vec<_> = keys.iter().map(|key| ChaCha::new(key.bytes(), rounds)).collect();
        let got = reference::trajectory(&ciphers, &form, &incarnations, coord, steps)?;
        let got: Vec<u32> = got.iter().map(|value| value.to_bits()).collect();
        tally.compare(&vector, "reference", &got, &expected);
        let plan = Plan::new(steps, form, 1.0)?.with_rounds(rounds)?;
        for (isa, name) in ENGINES {
            // Neighbours on both sides, so that the coordinate sits in the middle of the vector path.
            let coords = coord.saturating_sub(40)..coord + 40;
            let (at, len) = ((coord - coords.start) as usize, (coords.end - coords.start) as usize);
            let mut cpu = engine(isa, &keys, &plan, coords)?;
            let mut got = Vec::new();
            for t in 0..steps {
                let mut terms = Vec::new();
                let step = Step::lower(&plan, t, &incarnations, &mut terms)?;
                got.push(added(&mut cpu, &Step { add: Add::Plain(1.0), ..step }, len)?[at]);
            }
            tally.compare(&vector, name, &got, &expected);
        }
        tally.lines += 1;
    }
    tally.finding("reference, scalar, fastest engine")
}

/// Adds one row to a gradient given as bits, and gives the bits back.
fn add<E: Element>(vector: &Vector, isa: Isa) -> Result<Vec<u32>> {
    let mut gradient: Vec<E> = vector.words("before")?.into_iter().map(E::from_bits).collect();
    let plan = Plan::new(1, Form::independent(), 1.0)?.with_rounds(vector.rounds()?)?;
    let first = vector.decimal("coord")?;
    let coords = first..first + gradient.len() as u64;
    let mut cpu = engine(isa, &[RunKey::from_bytes(vector.key()?)], &plan, coords)?;
    cpu.step(&vector.step()?, Gradients::new(&mut [&mut gradient[..]]))?;
    Ok(gradient.into_iter().map(E::to_bits).collect())
}

pub fn gradients(_: bool) -> Result<Finding> {
    let mut tally = Tally::new();
    for vector in vectors::read(vectors::GRADIENTS)? {
        let dtype: Dtype = vector.text("type")?.parse()?;
        for (isa, name) in ENGINES {
            let got = with_element!(dtype, E => add::<E>(&vector, isa))?;
            tally.compare(&vector, name, &got, &vector.words("after")?);
        }
        tally.lines += 1;
    }
    tally.finding(&format!("{}; scalar, fastest engine", Dtype::ALL.map(Dtype::name).join(", ")))
}
