//! hudsucker as a forward proxy that changes nothing: `hudsucker-peer ADDRESS CA-WITH-KEY.pem ORIGIN-CA.pem`.
use hudsucker::Proxy;
use hudsucker::certificate_authority::RcgenAuthority;
use hudsucker::rcgen::{Issuer, KeyPair};
use hudsucker::rustls::crypto::aws_lc_rs;
use hudsucker::rustls::pki_types::{CertificateDer, pem::PemObject};
use hudsucker::rustls::{ClientConfig, RootCertStore};
use std::error::Error;
use std::sync::Arc;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, ca, origin_ca] = arguments.as_slice() else {
        return Err("usage: hudsucker-peer ADDRESS CA-WITH-KEY.pem ORIGIN-CA.pem".into());
    };
    let pem = std::fs::read_to_string(ca)?;
    // The key stands first in the file, so the certificate is looked for.
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes())?;
    let issuer = Issuer::from_ca_cert_der(&certificate, KeyPair::from_pem(&pem)?)?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(origin_ca)? {
        roots.add(certificate?)?;
    }
    let tls = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_http1()
        .enable_http2()
        .build();
    let proxy = Proxy::builder()
        .with_addr(address.parse()?)
        .with_ca(RcgenAuthority::new(issuer, 1_000, aws_lc_rs::default_provider()))
        .with_http_connector(connector)
        .build()?;
    Ok(proxy.start().await?)
}
