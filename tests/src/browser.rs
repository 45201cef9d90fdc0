//! A Chromium, driven over WebDriver by Debian's chromedriver.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::Command,
    time::Duration,
};

use anyhow::{Context, ensure};
use reqwest::Method;
use serde_json::{Value, json};
use testkit::{Process, free_port};

use crate::eventually;

/// One window. Dropping it ends the browser.
#[derive(Debug)]
pub struct Browser {
    http: reqwest::Client,
    session: String,
    port: u16,
    _driver: Process,
}

impl Drop for Browser {
    /// Chromium outlives its driver, so the driver is asked to end it.
    fn drop(&mut self) {
        let Ok(mut driver) = TcpStream::connect(("127.0.0.1", self.port)) else { return };
        let _ = driver.set_read_timeout(Some(Duration::from_secs(10)));
        let path = self.session.splitn(4, '/').nth(3).unwrap_or_default();
        let asked = write!(driver, "DELETE /{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
        // It answers when Chromium has ended.
        let _ = asked.and_then(|()| driver.read(&mut [0; 1024]));
    }
}

impl Browser {
    /// A window of this width, of a person who prefers dark or light pages.
    pub async fn open(width: u32, dark: bool) -> anyhow::Result<Browser> {
        let port = free_port();
        let mut command = Command::new("chromedriver");
        command.arg(format!("--port={port}"));
        let driver = Process::start(&mut command).context("chromedriver: ./scripts/check browser installs it")?;
        let http = reqwest::Client::builder().timeout(Duration::from_secs(60)).build()?;
        let url = format!("http://127.0.0.1:{port}");
        eventually(async || http.get(format!("{url}/status")).send().await.is_ok()).await?;
        let scheme = if dark { 0 } else { 1 };
        let options = [
            "--headless=new".to_owned(),
            "--no-sandbox".to_owned(),
            "--disable-gpu".to_owned(),
            "--disable-background-networking".to_owned(),
            // Narrower than the narrowest window of Chromium.
            format!("--window-size={},1000", width.max(500)),
            format!("--blink-settings=preferredColorScheme={scheme}"),
        ];
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": { "args": options },
            "goog:loggingPrefs": { "browser": "ALL" },
        } } });
        let answer = http.post(format!("{url}/session")).json(&wanted).send().await?.json::<Value>().await?;
        let id = answer["value"]["sessionId"].as_str().with_context(|| format!("no session: {answer}"))?;
        let browser = Browser { session: format!("{url}/session/{id}"), http, port, _driver: driver };
        let metrics = json!({ "width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": false });
        let sized = json!({ "cmd": "Emulation.setDeviceMetricsOverride", "params": metrics });
        browser.command("goog/cdp/execute", &sized).await?;
        Ok(browser)
    }

    async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
        let mut request = self.http.request(method, format!("{}/{path}", self.session));
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = request.send().await?.json::<Value>().await?;
        let error = &answer["value"]["error"];
        ensure!(error.is_null(), "{path} {body:?}: {error}: {}", answer["value"]["message"]);
        Ok(answer["value"].clone())
    }

    async fn command(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        self.send(Method::POST, path, Some(body)).await
    }

    pub async fn go(&self, url: &str) -> anyhow::Result<()> {
        self.command("url", &json!({ "url": url })).await.map(drop)
    }

    /// The element that a CSS selector finds, waited for.
    async fn element(&self, using: &str, value: &str) -> anyhow::Result<String> {
        let wanted = json!({ "using": using, "value": value });
        let found = eventually(async || self.command("element", &wanted).await.map(Some));
        let found = found.await.with_context(|| format!("nothing is {value}"))?;
        let id = found.as_object().and_then(|of| of.values().next()).and_then(Value::as_str);
        Ok(id.context("no element")?.to_owned())
    }

    async fn click_on(&self, using: &str, value: &str) -> anyhow::Result<()> {
        let element = self.element(using, value).await?;
        self.command(&format!("element/{element}/click"), &json!({})).await.map(drop)
    }

    pub async fn click(&self, selector: &str) -> anyhow::Result<()> {
        self.click_on("css selector", selector).await
    }

    /// Clicks the link with exactly this text.
    pub async fn follow(&self, text: &str) -> anyhow::Result<()> {
        self.click_on("link text", text).await
    }

    /// Types into what a selector finds.
    pub async fn fill(&self, selector: &str, text: &str) -> anyhow::Result<()> {
        let element = self.element("css selector", selector).await?;
        self.command(&format!("element/{element}/value"), &json!({ "text": text })).await.map(drop)
    }

    /// What a script returns.
    pub async fn script(&self, script: &str) -> anyhow::Result<Value> {
        self.command("execute/sync", &json!({ "script": script, "args": [] })).await
    }

    /// The text of the page's content, as a person sees it.
    pub async fn text(&self) -> anyhow::Result<String> {
        let text = self.script("return document.querySelector('main').innerText").await?;
        Ok(text.as_str().unwrap_or_default().to_owned())
    }

    /// Waits until the page shows this.
    pub async fn shows(&self, words: &str) -> anyhow::Result<()> {
        let shown = eventually(async || {
            let text = self.text().await?;
            ensure!(text.contains(words), "{words:?} is not shown:\n{text}");
            anyhow::Ok(())
        });
        shown.await
    }

    /// What scripts and loading have complained about since the last call.
    pub async fn complaints(&self) -> anyhow::Result<Vec<String>> {
        let entries = self.command("se/log", &json!({ "type": "browser" })).await?;
        let entries = entries.as_array().context("no log")?;
        Ok(entries.iter().filter_map(|entry| entry["message"].as_str()).map(str::to_owned).collect())
    }

    /// A picture of the window, as a PNG file.
    pub async fn picture(&self, path: &Path) -> anyhow::Result<()> {
        let encoded = self.send(Method::GET, "screenshot", None).await?;
        let picture = decoded(encoded.as_str().context("no picture")?).context("not in base64")?;
        tokio::fs::write(path, picture).await.with_context(|| path.display().to_string())
    }
}

/// Base64 without line breaks.
fn decoded(text: &str) -> Option<Vec<u8>> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = text.trim_end_matches('=').bytes().map(|byte| DIGITS.iter().position(|digit| *digit == byte));
    let digits: Vec<usize> = digits.collect::<Option<_>>()?;
    let group = |digits: &[usize]| {
        let bits = digits.iter().fold(0, |bits, digit| bits << 6 | digit) << (6 * (4 - digits.len()));
        (0..digits.len().saturating_sub(1))
            .map(|at| u8::try_from(bits >> (16 - 8 * at) & 0xff).unwrap_or(0))
            .collect::<Vec<_>>()
    };
    Some(digits.chunks(4).flat_map(group).collect())
}
