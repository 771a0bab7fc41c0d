//! The known answers of the noise specification and their one reader, for tests of every backend and for `corrnoise verify`.
//!
//! A line of a file is a kind and `name=value` fields; a comment that starts with `# source:` names where the next lines come from.
//! Every file names a source before its first vector. A runner fails on a kind that it does not know and on a line without a field
//! that it needs, so no vector is passed over in silence.

use crate::backend::{Add, Step, StepKernel};
use crate::grid::{Grid, STEPS_PER_BLOCK};
use crate::{Error, Family, Incarnations, Result, Rounds, Row, RunKey};

/// A file of vectors: its name, for messages, and its text.
pub type File = (&'static str, &'static str);

macro_rules! file {
    ($name:literal) => {
        ($name, include_str!(concat!("../vectors/", $name)))
    };
}

/// ChaCha blocks and keystreams.
pub const CHACHA: File = file!("chacha.txt");
/// Words of the keystream and the normals made of them.
pub const GAUSS: File = file!("gauss.txt");
/// Normals by key, row and coordinate.
pub const NORMALS: File = file!("normals.txt");
/// The noise of whole forms, step by step.
pub const FORMS: File = file!("forms.txt");
/// Gradients of every number type before and after one step.
pub const GRADIENTS: File = file!("gradients.txt");

/// One known answer: a line of a file.
pub struct Vector {
    /// The kind of the vector, the first word of its line.
    pub kind: &'static str,
    /// The file and the line, for messages.
    pub place: String,
    /// The origin of the expected values.
    pub source: &'static str,
    fields: Vec<(&'static str, &'static str)>,
}

/// Reads all vectors of a file.
pub fn read((name, text): File) -> Result<Vec<Vector>> {
    let refuse =
        |place: &str, what: &str| Error::parameter(place, format!("{what:?}"), "a vector with its source");
    let mut source = None;
    let mut vectors = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let place = format!("{name}:{}", number + 1);
        if let Some(named) = line.strip_prefix("# source:") {
            source = Some(named.trim());
            continue;
        }
        let mut words = line.split(' ');
        let kind = words.next().unwrap_or_default();
        let fields = words.map(|word| word.split_once('=').ok_or_else(|| refuse(&place, word)));
        let fields = fields.collect::<Result<Vec<_>>>()?;
        let source = source.ok_or_else(|| refuse(&place, line))?;
        vectors.push(Vector { kind, place, source, fields });
    }
    if vectors.is_empty() { Err(refuse(name, "")) } else { Ok(vectors) }
}

impl Vector {
    /// The text of a field.
    pub fn text(&self, name: &str) -> Result<&'static str> {
        let field = self.fields.iter().find(|(field, _)| *field == name);
        field.map(|(_, value)| *value).ok_or_else(|| self.bad(name))
    }

    fn bad(&self, name: &str) -> Error {
        Error::parameter(
            format!("field {name:?} of {}", self.place),
            "missing or damaged",
            "as docs/noise-spec.md has it",
        )
    }

    /// The error of a runner that does not know this kind of vector.
    pub fn unknown(&self) -> Error {
        Error::parameter(format!("kind of {}", self.place), self.kind, "one that this check knows")
    }

    /// The value of a field in decimal.
    pub fn decimal(&self, name: &str) -> Result<u64> {
        self.text(name)?.parse().map_err(|_| self.bad(name))
    }

    /// The value of a field in hexadecimal.
    pub fn hex(&self, name: &str) -> Result<u64> {
        u64::from_str_radix(self.text(name)?, 16).map_err(|_| self.bad(name))
    }

    /// The comma-separated 32-bit words of a field in hexadecimal.
    pub fn words(&self, name: &str) -> Result<Vec<u32>> {
        let word = |text| u32::from_str_radix(text, 16).map_err(|_| self.bad(name));
        self.text(name)?.split(',').map(word).collect()
    }

    /// The bytes of a field in hexadecimal.
    pub fn bytes(&self, name: &str) -> Result<Vec<u8>> {
        bytes(self.text(name)?).ok_or_else(|| self.bad(name))
    }

    /// The 32 bytes of the field `key`.
    pub fn key(&self) -> Result<[u8; 32]> {
        self.bytes("key")?.try_into().map_err(|_| self.bad("key"))
    }

    /// The rounds of the cipher, from the field `rounds`.
    pub fn rounds(&self) -> Result<Rounds> {
        Rounds::try_from(self.decimal("rounds")? as u32).map_err(|_| self.bad("rounds"))
    }

    /// The row that the field `stream` names.
    pub fn row(&self) -> Result<Row> {
        let stream = self.hex("stream")?;
        let family = match stream >> 56 {
            0 => Family::Step,
            1 => Family::TreeNode,
            2 => Family::Sampler,
            _ => return Err(self.bad("stream")),
        };
        let row = Row::new(family, (stream >> 40) as u16, stream & (Row::INDEX_LIMIT - 1))?;
        if row.stream() == stream { Ok(row) } else { Err(self.bad("stream")) }
    }

    /// The step of independent noise that the field `step` names, with the grid that the line describes.
    pub fn step(&self) -> Result<Step<'static>> {
        let number = self.decimal("step")?;
        let exponent = self.text("grid_exponent")?.parse().map_err(|_| self.bad("grid_exponent"))?;
        let grid = Grid::new(exponent, f32::from_bits(self.hex("scale")? as u32));
        let row = Row::new(Family::Step, 0, number)?;
        let dither = Row::new(Family::Dither, 0, number / STEPS_PER_BLOCK)?;
        let kernel = StepKernel::Blt { row, scale: &[], decay: &[], fresh: true };
        Ok(Step { number, add: Add::OnGrid(grid), dither, kernel })
    }

    /// The field `incarnations`: the first step of each incarnation of a run, and the keys of all, by number.
    pub fn incarnations(&self) -> Result<(Incarnations, Vec<RunKey>)> {
        let bad = || self.bad("incarnations");
        let (mut incarnations, mut keys) = (Incarnations::first(), Vec::new());
        for (number, entry) in self.text("incarnations")?.split(',').enumerate() {
            let (first, key) = entry.split_once(':').ok_or_else(bad)?;
            if number > 0 {
                let nonce = [number as u8; Incarnations::NONCE_LEN];
                incarnations.begin(first.parse().map_err(|_| bad())?, nonce)?;
            }
            let key = bytes(key).and_then(|bytes| bytes.try_into().ok());
            keys.push(RunKey::from_bytes(key.ok_or_else(bad)?));
        }
        Ok((incarnations, keys))
    }
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let pairs = hex.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}
