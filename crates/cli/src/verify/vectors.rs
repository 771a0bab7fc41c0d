//! The known answers, and the reader of their lines: a kind and `name=value` fields, after a comment that names their source.

use crate::failure::{Failure, Result};
use corrnoise::{Family, Incarnations, Rounds, Row, RunKey};

// Links to the repository's tests/vectors, so that there is one copy; a published package holds the files themselves.
pub const CHACHA: (&str, &str) = ("chacha.txt", include_str!("../../vectors/chacha.txt"));
pub const GAUSS: (&str, &str) = ("gauss.txt", include_str!("../../vectors/gauss.txt"));
pub const NORMALS: (&str, &str) = ("normals.txt", include_str!("../../vectors/normals.txt"));
pub const FORMS: (&str, &str) = ("forms.txt", include_str!("../../vectors/forms.txt"));
pub const GRADIENTS: (&str, &str) = ("gradients.txt", include_str!("../../vectors/gradients.txt"));

/// One line of a file.
pub struct Vector<'a> {
    pub kind: &'a str,
    /// File and line, for messages.
    pub place: String,
    fields: Vec<(&'a str, &'a str)>,
}

/// All vectors of a file.
pub fn read<'a>((name, text): (&str, &'a str)) -> Result<Vec<Vector<'a>>> {
    let mut vectors = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
        let place = format!("{name}:{}", number + 1);
        let mut words = line.split(' ');
        let kind = words.next().unwrap_or_default();
        let field = |word: &'a str| {
            word.split_once('=').ok_or_else(|| Failure::input(format!("{place}: {word:?} is no field")))
        };
        let fields = words.map(field).collect::<Result<Vec<_>>>()?;
        vectors.push(Vector { kind, place, fields });
    }
    match vectors.is_empty() {
        true => Err(Failure::input(format!("{name} holds no vector"))),
        false => Ok(vectors),
    }
}

impl<'a> Vector<'a> {
    /// A field as text.
    pub fn text(&self, name: &str) -> Result<&'a str> {
        let field = self.fields.iter().find(|(field, _)| *field == name);
        field.map(|(_, value)| *value).ok_or_else(|| self.bad(name))
    }

    fn bad(&self, name: &str) -> Failure {
        Failure::input(format!("{}: field {name:?} is missing or damaged", self.place))
    }

    /// A line that no check here knows how to read.
    pub fn unknown(&self) -> Failure {
        Failure::input(format!("{}: kind {:?} is not known", self.place, self.kind))
    }

    pub fn decimal(&self, name: &str) -> Result<u64> {
        self.text(name)?.parse().map_err(|_| self.bad(name))
    }

    pub fn hex(&self, name: &str) -> Result<u64> {
        u64::from_str_radix(self.text(name)?, 16).map_err(|_| self.bad(name))
    }

    /// Comma-separated 32-bit words in hexadecimal.
    pub fn words(&self, name: &str) -> Result<Vec<u32>> {
        let word = |text| u32::from_str_radix(text, 16).map_err(|_| self.bad(name));
        self.text(name)?.split(',').map(word).collect()
    }

    /// Bytes in hexadecimal.
    pub fn bytes(&self, name: &str) -> Result<Vec<u8>> {
        bytes(self.text(name)?).ok_or_else(|| self.bad(name))
    }

    pub fn key(&self) -> Result<[u8; 32]> {
        self.bytes("key")?.try_into().map_err(|_| self.bad("key"))
    }

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

    /// The field `lives`: when each life of a run began, and the keys of all, by number.
    pub fn lives(&self) -> Result<(Incarnations, Vec<RunKey>)> {
        let (mut incarnations, mut keys) = (Incarnations::first(), Vec::new());
        for (number, life) in self.text("lives")?.split(',').enumerate() {
            let bad = || self.bad("lives");
            let (first, key) = life.split_once(':').ok_or_else(bad)?;
            if number > 0 {
                incarnations
                    .begin(first.parse().map_err(|_| bad())?, [number as u8; Incarnations::NONCE_LEN])?;
            }
            keys.push(RunKey::from_bytes(
                bytes(key).and_then(|bytes| bytes.try_into().ok()).ok_or_else(bad)?,
            ));
        }
        Ok((incarnations, keys))
    }
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let pairs = hex.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}
