//! One client connection with HTTP on it.
use crate::target::{Target, Version};
use anyhow::Context;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};

/// A connection on which requests can be sent, one after the other.
pub(crate) struct Client {
    sender: Sender,
    authority: String,
    bearer: HeaderValue,
}

enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Client {
    /// Connects to a name by way of a target. Closed when dropped.
    pub(crate) async fn open(
        target: &Target,
        host: &str,
        number: usize,
        version: Version,
    ) -> anyhow::Result<Self> {
        let stream = target.connect(host, number, version).await?;
        let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        anyhow::ensure!(
            http2 == (version == Version::Http2),
            "`{}` does not speak the version that was asked for",
            target.name
        );
        let io = TokioIo::new(stream);
        // Ends with the connection; what goes wrong on it, the request that waits is told.
        let sender = if http2 {
            let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await?;
            tokio::spawn(connection);
            Sender::Http2(sender)
        } else {
            let (sender, connection) = http1::handshake(io).await?;
            tokio::spawn(connection);
            Sender::Http1(sender)
        };
        let bearer = format!("Bearer {}", target.user(number).bearer);
        Ok(Self {
            sender,
            authority: format!("{host}:{}", version.port()),
            bearer: HeaderValue::from_str(&bearer)?,
        })
    }

    /// Sends a request and gives the answer's head with the body to come.
    pub(crate) async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> anyhow::Result<Response<Incoming>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        let headers = request.headers_mut();
        headers.insert(header::AUTHORIZATION, self.bearer.clone());
        headers.insert(header::ACCEPT, HeaderValue::from_static("*/*"));
        headers.insert(header::USER_AGENT, HeaderValue::from_static("sallyport-load"));
        let response = match &mut self.sender {
            Sender::Http1(sender) => {
                request
                    .headers_mut()
                    .insert(header::HOST, HeaderValue::from_str(&self.authority)?);
                *request.uri_mut() = path.parse()?;
                sender.ready().await?;
                sender.send_request(request).await?
            }
            Sender::Http2(sender) => {
                *request.uri_mut() = format!("https://{}{path}", self.authority).parse()?;
                sender.ready().await?;
                sender.send_request(request).await?
            }
        };
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let text = response.into_body().collect().await?.to_bytes();
        anyhow::bail!("{path}: {status}: {}", String::from_utf8_lossy(&text))
    }

    /// One exchange, read to its end; the bytes of the answer's body.
    pub(crate) async fn exchange(&mut self, method: Method, path: &str, body: Bytes) -> anyhow::Result<u64> {
        let mut body = self.send(method, path, body).await?.into_body();
        let mut count = 0;
        while let Some(frame) = body.frame().await {
            let frame = frame.context("in the middle of an answer")?;
            count += frame.data_ref().map_or(0, |data| data.len() as u64);
        }
        Ok(count)
    }

    /// `GET` of the small answer.
    pub(crate) async fn small(&mut self) -> anyhow::Result<()> {
        let count = self.exchange(Method::GET, "/json", Bytes::new()).await?;
        anyhow::ensure!(count == 200, "the answer has {count} bytes instead of 200");
        Ok(())
    }
}
