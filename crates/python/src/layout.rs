//! The Python class `corrnoise.Layout`.

use crate::error::raise;
use corrnoise::Shard;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The model's tensors as one coordinate space, in a stable order; each starts at a multiple of 512 coordinates.
#[pyclass(module = "corrnoise", frozen, eq)]
#[derive(PartialEq)]
pub(crate) struct Layout(pub(crate) corrnoise::Layout);

/// A model as a caller names it: the size of one flat vector, or a layout.
#[derive(FromPyObject)]
pub(crate) enum Model<'py> {
    Flat(u64),
    Layout(PyRef<'py, Layout>),
}

impl Model<'_> {
    /// The part of the model inside `ranges`; all of it if there are none.
    pub(crate) fn shard(&self, ranges: Option<Vec<(u64, u64)>>, replica: bool) -> PyResult<Shard> {
        let whole = match self {
            Model::Flat(dim) => Shard::whole(*dim).map_err(raise)?,
            Model::Layout(layout) => layout.0.whole(),
        };
        let whole = if replica { whole.replica() } else { whole };
        let Some(ranges) = ranges else { return Ok(whole) };
        let ranges: Vec<_> = ranges.into_iter().map(|(start, stop)| start..stop).collect();
        whole.select(&ranges).map_err(raise)
    }
}

#[pymethods]
impl Layout {
    /// Lays out tensors one after another: a dict of sizes by name, in its order.
    #[new]
    fn new(tensors: &Bound<'_, PyDict>) -> PyResult<Layout> {
        let tensors = tensors.iter().map(|(name, size)| Ok((name.extract()?, size.extract()?)));
        let tensors = tensors.collect::<PyResult<Vec<(String, u64)>>>()?;
        corrnoise::Layout::new(tensors).map(Layout).map_err(raise)
    }

    /// The name, the first coordinate and the one past the last, for every tensor.
    #[getter]
    fn tensors(&self) -> Vec<(String, u64, u64)> {
        let row = |tensor: &corrnoise::Tensor| (tensor.name.clone(), tensor.coords.start, tensor.coords.end);
        self.0.tensors().iter().map(row).collect()
    }

    /// One past the last coordinate.
    #[getter]
    fn dim(&self) -> u64 {
        self.0.dim()
    }

    /// The fingerprint that names the layout: 64 hexadecimal digits.
    #[getter]
    fn fingerprint(&self) -> String {
        self.0.fingerprint().to_string()
    }

    fn __repr__(&self) -> String {
        format!("Layout({} tensors, dim={})", self.0.tensors().len(), self.0.dim())
    }
}
