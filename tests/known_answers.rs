//! Every implementation against the same vectors: the reference functions, and the CPU engine with and without SIMD.

use corrnoise::backend::{Add, Backend, Step, StepKernel};
use corrnoise::chacha::ChaCha;
use corrnoise::vectors::{self, Vector};
use corrnoise::{
    Cpu, CpuOptions, Dtype, Element, Form, Gradients, Isa, Plan, Row, RunKey, Shard, gauss, noise, reference,
    with_element,
};

const ENGINES: [Isa; 2] = [Isa::Scalar, Isa::Auto];

fn engine(isa: Isa, keys: &[RunKey], plan: &Plan, coords: std::ops::Range<u64>) -> Cpu {
    let shard = Shard::whole(coords.end).unwrap().within(coords).unwrap();
    Cpu::new(plan, keys, &shard, CpuOptions { threads: 1, isa, ..CpuOptions::default() }).unwrap()
}

/// Makes one step of an engine on a zero gradient and returns its noise as bits.
fn run(cpu: &mut Cpu, step: &Step<'_>, len: usize) -> Vec<u32> {
    let mut out = vec![0.0_f32; len];
    cpu.step(step, Gradients::new(&mut [&mut out[..]])).unwrap();
    out.iter().map(|z| z.to_bits()).collect()
}

#[test]
fn keystream() {
    for vector in vectors::read(vectors::CHACHA).unwrap() {
        let cipher = ChaCha::new(&vector.key().unwrap(), vector.rounds().unwrap());
        match vector.kind {
            "block" => {
                let words = cipher.block(vector.hex("stream").unwrap(), vector.hex("block").unwrap());
                assert_eq!(words.to_vec(), vector.words("words").unwrap(), "{}", vector.place);
            }
            "keystream" => {
                let nonce: [u8; 8] = vector.bytes("nonce").unwrap().try_into().unwrap();
                let expected = vector.bytes("bytes").unwrap();
                let blocks = (0..expected.len() as u64 / 64)
                    .map(|block| cipher.block(u64::from_le_bytes(nonce), block));
                let bytes: Vec<u8> = blocks.flatten().flat_map(u32::to_le_bytes).collect();
                assert_eq!(bytes, expected, "{}", vector.place);
            }
            other => panic!("{}: unknown kind {other}", vector.place),
        }
    }
}

#[test]
fn words_to_normals() {
    for vector in vectors::read(vectors::GAUSS).unwrap() {
        let word = |name| vector.hex(name).unwrap() as u32;
        let (got, expected) = match vector.kind {
            "radius" => (vec![gauss::radius(word("word"))], vector.words("bits").unwrap()),
            "tail" => {
                let words = vector.words("words").unwrap();
                (vec![gauss::tail_radius(words[0], words[1], words[2])], vector.words("bits").unwrap())
            }
            "angle" => {
                let (sin, cos) = gauss::sin_cos(word("word"));
                (vec![sin, cos], [vector.words("sin").unwrap(), vector.words("cos").unwrap()].concat())
            }
            "pair" => {
                let (first, second) = gauss::normals(gauss::radius(word("radius_word")), word("angle_word"));
                (vec![first, second], vector.words("bits").unwrap())
            }
            other => panic!("{}: unknown kind {other}", vector.place),
        };
        assert_eq!(got.iter().map(|x| x.to_bits()).collect::<Vec<_>>(), expected, "{}", vector.place);
    }
}

#[test]
fn normals() {
    for vector in vectors::read(vectors::NORMALS).unwrap() {
        assert_eq!(vector.kind, "normals", "{}", vector.place);
        let (first, expected) = (vector.decimal("coord").unwrap(), vector.words("bits").unwrap());
        let coords = first..first + expected.len() as u64;
        let cipher = ChaCha::new(&vector.key().unwrap(), vector.rounds().unwrap());
        let got: Vec<u32> =
            coords.clone().map(|c| noise::normal(&cipher, vector.row().unwrap(), c).to_bits()).collect();
        assert_eq!(got, expected, "{} (reference)", vector.place);
        let plan =
            Plan::new(1, Form::independent(), 1.0).unwrap().with_rounds(vector.rounds().unwrap()).unwrap();
        for isa in ENGINES {
            // All incarnations have one key, so that any incarnation in the row's name is known.
            let keys: Vec<_> = (0..=vector.row().unwrap().incarnation())
                .map(|_| RunKey::from_bytes(vector.key().unwrap()))
                .collect();
            let mut cpu = engine(isa, &keys, &plan, coords.clone());
            // 1·z + 0 is z: the engine returns its own normals, whatever the row's family.
            let kernel = StepKernel::Regenerate { terms: &[(vector.row().unwrap(), 1.0)] };
            let step = Step { number: 0, add: Add::Plain(1.0), dither: Row::default(), kernel };
            assert_eq!(run(&mut cpu, &step, expected.len()), expected, "{} ({isa:?})", vector.place);
        }
    }
}

#[test]
fn forms() {
    for vector in vectors::read(vectors::FORMS).unwrap() {
        assert_eq!(vector.kind, "form", "{}", vector.place);
        let (coord, expected) = (vector.decimal("coord").unwrap(), vector.words("bits").unwrap());
        let steps = expected.len() as u64;
        let form: Form = serde_json::from_str(vector.text("form").unwrap()).unwrap();
        let (incarnations, keys) = vector.incarnations().unwrap();
        let ciphers: Vec<_> =
            keys.iter().map(|key| ChaCha::new(key.bytes(), vector.rounds().unwrap())).collect();
        let got = reference::trajectory(&ciphers, &form, &incarnations, coord, steps).unwrap();
        assert_eq!(
            got.iter().map(|z| z.to_bits()).collect::<Vec<_>>(),
            expected,
            "{} (reference)",
            vector.place
        );
        let plan = Plan::new(steps, form, 1.0).unwrap().with_rounds(vector.rounds().unwrap()).unwrap();
        for isa in ENGINES {
            // The tile of the coordinate and its neighbours on both sides: a whole tile and parts of others.
            let tile = coord - coord % 512;
            let coords = tile.saturating_sub(40)..tile + 552;
            let at = (coord - coords.start) as usize;
            let mut cpu = engine(isa, &keys, &plan, coords.clone());
            let mut terms = Vec::new();
            let got: Vec<u32> = (0..steps)
                .map(|t| {
                    let step = Step::lower(&plan, t, &incarnations, &mut terms).unwrap();
                    let step = Step { add: Add::Plain(1.0), ..step };
                    run(&mut cpu, &step, (coords.end - coords.start) as usize)[at]
                })
                .collect();
            assert_eq!(got, expected, "{} ({isa:?})", vector.place);
        }
    }
}

/// Adds one row to a gradient given as bits, and gives the bits back.
fn add<E: Element>(vector: &Vector, isa: Isa) -> Vec<u32> {
    let mut gradient: Vec<E> = vector.words("before").unwrap().into_iter().map(E::from_bits).collect();
    let plan = Plan::new(1, Form::independent(), 1.0).unwrap().with_rounds(vector.rounds().unwrap()).unwrap();
    let keys = [RunKey::from_bytes(vector.key().unwrap())];
    let first = vector.decimal("coord").unwrap();
    let mut cpu = engine(isa, &keys, &plan, first..first + gradient.len() as u64);
    cpu.step(&vector.step().unwrap(), Gradients::new(&mut [&mut gradient[..]])).unwrap();
    gradient.into_iter().map(E::to_bits).collect()
}

#[test]
fn gradients() {
    for vector in vectors::read(vectors::GRADIENTS).unwrap() {
        assert_eq!(vector.kind, "add", "{}", vector.place);
        // The grid is that of a new plan of so many steps.
        let (steps, scale) = (vector.decimal("plan_steps").unwrap(), vector.words("scale").unwrap()[0]);
        let plan = Plan::new(steps, Form::independent(), f32::from_bits(scale).into()).unwrap();
        let exponent = vector.text("grid_exponent").unwrap();
        assert_eq!(plan.grid_exponent().to_string(), exponent, "{}", vector.place);
        for isa in ENGINES {
            let dtype: Dtype = vector.text("type").unwrap().parse().unwrap();
            let got = with_element!(dtype, E => add::<E>(&vector, isa));
            assert_eq!(got, vector.words("after").unwrap(), "{} ({isa:?})", vector.place);
        }
    }
}
