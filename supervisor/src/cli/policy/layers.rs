//! A policy file in its place: the layer that it is, and the files of the layers above it.
use super::{USAGE, files};
use crate::cli::Failure;
use sallyport_policy::{Layer, LayerTexts, Policy, PolicyText, Problem};
use std::path::{Path, PathBuf};

/// Options of the commands that read a policy as one layer among others.
#[derive(Debug, clap::Args)]
pub(super) struct Place {
    /// Read the policy as this layer
    #[arg(long, value_parser = layer, default_value = "run")]
    layer: Layer,
    /// A policy that binds it from above, such as `organisation=ceiling.yaml`; once for each layer
    #[arg(long, value_parser = above, value_name = "LAYER=FILE")]
    above: Vec<(Layer, PathBuf)>,
}

/// A policy with the files that it was made of.
pub(super) struct Read {
    pub(super) texts: Vec<PolicyText>,
    pub(super) policy: Result<Policy, Vec<Problem>>,
}

impl Place {
    /// Reads a file and those above it. The inner result is the policy's own; the outer one is about reading files.
    pub(super) fn read(&self, file: &Path) -> Result<Read, Failure> {
        let mut layers = Vec::new();
        for (layer, path) in &self.above {
            if *layer >= self.layer {
                let why = format!("`--above {layer}=...` is not above the layer `{}`", self.layer);
                return Err(Failure::with_code(USAGE, why));
            }
            layers.push(texts(*layer, path)?);
        }
        let own = texts(self.layer, file)?;
        let mut all = own.texts.clone();
        all.extend(layers.iter().flat_map(|above| above.texts.iter().cloned()));
        layers.push(own);
        Ok(Read {
            texts: all,
            policy: Policy::compile_layers(&layers),
        })
    }
}

fn texts(layer: Layer, file: &Path) -> Result<LayerTexts, Failure> {
    let texts = files::load(file).map_err(|fault| Failure::new(fault.to_string()))?;
    Ok(LayerTexts { layer, texts })
}

/// A layer as it is written in policies.
pub(super) fn layer(text: &str) -> Result<Layer, String> {
    Layer::parse(text).ok_or_else(|| "one of organisation, team, repository, run is wanted".to_owned())
}

fn above(text: &str) -> Result<(Layer, PathBuf), String> {
    let (name, file) = text
        .split_once('=')
        .ok_or("write for example `organisation=ceiling.yaml`")?;
    Ok((layer(name)?, PathBuf::from(file)))
}
