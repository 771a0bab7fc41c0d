//! The table behind the figure in `docs/batch-size.md`, which `examples/batch_size.rs` writes and `tests/batch_size.rs` reads.

use std::fmt;

/// The number of training steps of every row.
pub const STEPS: usize = 2048;

/// The number of examples in the dataset of every row.
pub const DATASET: u64 = 4096;

/// The header line of the table, with its line break.
pub const HEADER: &str = "epsilon\tbatch\tindependent\tindependent_poisson\tbanded\tbands\tbanded_block_poisson\tbands_block_poisson\n";

/// The max losses of four mechanisms at one batch size, and the numbers of bands that were chosen.
pub struct Row {
    /// The ε of the privacy budget.
    pub epsilon: f64,
    /// The number of examples per batch.
    pub batch: u64,
    /// The loss of independent noise without amplification.
    pub independent: f64,
    /// The loss of independent noise with Poisson sampling.
    pub independent_sampled: f64,
    /// The loss of banded correlated noise without amplification.
    pub banded: f64,
    /// The number of bands behind `banded`.
    pub banded_bands: usize,
    /// The loss of banded correlated noise with block-cyclic Poisson sampling.
    pub banded_sampled: f64,
    /// The number of bands behind `banded_sampled`.
    pub banded_sampled_bands: usize,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\t{}", self.epsilon, self.batch)?;
        write!(f, "\t{:.5}\t{:.5}", self.independent, self.independent_sampled)?;
        write!(f, "\t{:.5}\t{}", self.banded, self.banded_bands)?;
        write!(f, "\t{:.5}\t{}", self.banded_sampled, self.banded_sampled_bands)
    }
}

impl Row {
    /// Reads a line of the table; none if it is not one.
    pub fn parse(line: &str) -> Option<Row> {
        let cells: Vec<f64> = line.split('\t').map(|cell| cell.parse().ok()).collect::<Option<_>>()?;
        let [epsilon, batch, independent, independent_sampled, banded, bands, banded_sampled, bands_sampled] =
            cells[..]
        else {
            return None;
        };
        let (batch, banded_bands, banded_sampled_bands) =
            (batch as u64, bands as usize, bands_sampled as usize);
        Some(Row {
            epsilon,
            batch,
            independent,
            independent_sampled,
            banded,
            banded_bands,
            banded_sampled,
            banded_sampled_bands,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_table_is_read_and_written_alike() {
        let text = include_str!("../../../docs/batch-size.tsv");
        let rows =
            text.strip_prefix(HEADER).expect("the header").lines().map(|line| Row::parse(line).expect(line));
        assert_eq!(HEADER.to_owned() + &rows.map(|row| format!("{row}\n")).collect::<String>(), text);
    }
}
