//! The files of authorities that the operator trusts upstream, read at the start and each time that the gateway is told to reload.
use std::io;
use std::path::PathBuf;

/// The files, in the order in which they were named.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RootFiles(Vec<PathBuf>);

impl RootFiles {
    /// These files; nothing is read yet.
    pub fn new(paths: Vec<PathBuf>) -> Self {
        Self(paths)
    }

    /// All of them as one PEM text, or the one that cannot be used. One without a certificate is a mistake: it would take trust away
    /// in silence.
    pub fn read(&self) -> Result<Vec<u8>, (PathBuf, io::Error)> {
        let mut all = Vec::new();
        for path in &self.0 {
            let pem = std::fs::read(path)
                .and_then(|pem| match has_certificate(&pem)? {
                    true => Ok(pem),
                    false => Err(io::Error::other("it holds no certificate in PEM")),
                })
                .map_err(|error| (path.clone(), error))?;
            all.extend(pem);
            all.push(b'\n');
        }
        Ok(all)
    }
}

fn has_certificate(pem: &[u8]) -> io::Result<bool> {
    Ok(rustls_pemfile::certs(&mut &pem[..]).next().transpose()?.is_some())
}
