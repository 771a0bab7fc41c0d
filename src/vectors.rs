//! The one reader of `tests/vectors/*.txt`, for every backend's known-answer tests.
//!
//! A line is a kind and `name=value` fields; a comment that starts with `# source:` names where the next lines come from.
//! Every file must name a source before its first vector, and a runner that meets a kind it does not know, or a line without a
//! field it needs, fails.

use corrnoise::{Family, Incarnations, Rounds, Row, RunKey};
use std::collections::BTreeMap;
use std::path::Path;

/// One line of a file.
pub struct Vector {
    /// What it is about.
    pub kind: String,
    /// File and line, for messages.
    pub place: String,
    /// Where it comes from.
    pub source: String,
    fields: BTreeMap<String, String>,
}

/// All vectors of a file under `tests/vectors/`.
pub fn read(name: &str) -> Vec<Vector> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors").join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut source = None;
    let mut vectors = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let place = format!("{name}:{}", number + 1);
        if let Some(named) = line.strip_prefix("# source:") {
            source = Some(named.trim().to_owned());
            continue;
        }
        let mut words = line.split(' ');
        let kind = words.next().expect("split gives at least one").to_owned();
        let field = |word: &str| {
            let (name, value) =
                word.split_once('=').unwrap_or_else(|| panic!("{place}: {word:?} is no field"));
            (name.to_owned(), value.to_owned())
        };
        let fields = words.map(field).collect();
        let source = source.clone().unwrap_or_else(|| panic!("{place}: no source named"));
        vectors.push(Vector { kind, place: place.clone(), source, fields });
    }
    assert!(!vectors.is_empty(), "{name} holds no vector");
    vectors
}

impl Vector {
    /// A field as text.
    pub fn text(&self, name: &str) -> &str {
        self.fields.get(name).unwrap_or_else(|| panic!("{}: no field {name:?}", self.place))
    }

    /// A field in decimal.
    pub fn decimal(&self, name: &str) -> u64 {
        self.text(name).parse().unwrap_or_else(|error| panic!("{}: {name}: {error}", self.place))
    }

    /// A field in hexadecimal.
    pub fn hex(&self, name: &str) -> u64 {
        u64::from_str_radix(self.text(name), 16)
            .unwrap_or_else(|error| panic!("{}: {name}: {error}", self.place))
    }

    /// A field of comma-separated 32-bit words in hexadecimal.
    pub fn words(&self, name: &str) -> Vec<u32> {
        let word =
            |text| u32::from_str_radix(text, 16).unwrap_or_else(|error| panic!("{}: {error}", self.place));
        self.text(name).split(',').map(word).collect()
    }

    /// A field of bytes in hexadecimal.
    pub fn bytes(&self, name: &str) -> Vec<u8> {
        bytes(self.text(name), &self.place)
    }

    /// The field `key`.
    pub fn key(&self) -> [u8; 32] {
        self.bytes("key").try_into().unwrap_or_else(|_| panic!("{}: a key has 32 bytes", self.place))
    }

    /// The field `rounds`.
    pub fn rounds(&self) -> Rounds {
        Rounds::try_from(self.decimal("rounds") as u32)
            .unwrap_or_else(|error| panic!("{}: {error}", self.place))
    }

    /// The row that the field `stream` names.
    pub fn row(&self) -> Row {
        let stream = self.hex("stream");
        let family = match stream >> 56 {
            0 => Family::Step,
            1 => Family::TreeNode,
            2 => Family::Sampler,
            other => panic!("{}: family {other}", self.place),
        };
        let row = Row::new(family, (stream >> 40) as u16, stream & (Row::INDEX_LIMIT - 1)).expect("40 bits");
        assert_eq!(row.stream(), stream, "{}", self.place);
        row
    }

    /// The field `lives`: when each life of a run began, and the keys of all, by number.
    pub fn lives(&self) -> (Incarnations, Vec<RunKey>) {
        let mut incarnations = Incarnations::first();
        let mut keys = Vec::new();
        for (number, life) in self.text("lives").split(',').enumerate() {
            let (first, key) = life.split_once(':').unwrap_or_else(|| panic!("{}: {life:?}", self.place));
            let first = first.parse().unwrap_or_else(|error| panic!("{}: {error}", self.place));
            if number > 0 {
                incarnations.begin(first, [number as u8; 16]).expect("steps ascend");
            }
            keys.push(RunKey::from_bytes(bytes(key, &self.place).try_into().expect("a key has 32 bytes")));
        }
        (incarnations, keys)
    }
}

fn bytes(hex: &str, place: &str) -> Vec<u8> {
    let byte = |i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap_or_else(|error| panic!("{place}: {error}"));
    (0..hex.len()).step_by(2).map(byte).collect()
}
