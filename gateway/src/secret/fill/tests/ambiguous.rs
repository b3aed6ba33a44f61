//! Multipart forms that servers read in different ways: in them, nothing is filled.
use super::*;

/// What comes out of a form for the field `token`, with the placeholder for each `HERE`; however it is cut.
fn stays(body: &str) {
    for size in 1..body.len() + 60 {
        let (mut fill, text) = multipart("token");
        let sent = body.replace("HERE", &text);
        let out = run(&mut fill, sent.as_bytes(), &[size]).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), sent, "{body:?} by {size}");
        assert!(fill.put_in().is_empty(), "{body:?}");
    }
}

#[test]
fn a_boundary_counts_only_where_it_is_the_only_one_and_every_parameter_can_be_read() {
    for (said, wanted) in [
        ("multipart/form-data; boundary=b0", Some("b0")),
        ("multipart/form-data;charset=utf-8;BOUNDARY=\"b0\" ", Some("b0")),
        (
            "multipart/form-data; boundary=\"b 0\" ; charset=\"x;y\"",
            Some("b 0"),
        ),
        (
            "multipart/form-data; boundary=----=_Part/0:1",
            Some("----=_Part/0:1"),
        ),
        ("multipart/form-data", None),
        ("multipart/form-data; boundary=", None),
        ("multipart/form-data; boundary=b0; boundary=b1", None),
        ("multipart/form-data; boundary=b0; Boundary=b0", None),
        ("multipart/form-data; boundary=b0; boundary*=utf-8''b1", None),
        ("multipart/form-data; boundary*=utf-8''b0", None),
        ("multipart/form-data; boundary*0=b; boundary*1=0", None),
        ("multipart/form-data; boundary=b0; boundary*0*=b1", None),
        ("multipart/form-data; x; boundary=b0", None),
        ("multipart/form-data; boundary=b0; x", None),
        ("multipart/form-data; boundary=b0; =x", None),
        ("multipart/form-data; boundary=b0; x=\"y", None),
        ("multipart/form-data; boundary=\"b0\"x", None),
        ("multipart/form-data; boundary=b0 x", None),
        ("multipart/form-data; boundary=b0,x", None),
        ("multipart/form-data; boundary= \"b0\"", None),
    ] {
        assert_eq!(multipart::boundary(said).as_deref(), wanted, "{said}");
    }
}

#[test]
fn nothing_is_filled_before_or_behind_a_delimiter_with_blanks() {
    let part = "Content-Disposition: form-data; name=\"token\"\r\n\r\nHERE\r\n";
    for blanks in [" ", "\t", " \t", "  x"] {
        stays(&format!("--b0{blanks}\r\n{part}--b0--\r\n"));
        stays(&format!("--b0{blanks}\r\n{part}--b0\r\n{part}--b0--\r\n"));
        stays(&format!("--b0\r\n{part}--b0{blanks}\r\n--b0--\r\n"));
        let (mut fill, text) = multipart("token");
        let body = format!("--b0\r\n{part}--b0\r\n\r\n\r\n--b0{blanks}\r\n--b0--\r\n");
        let leak = run(&mut fill, body.replace("HERE", &text).as_bytes(), &[7]).unwrap_err();
        assert_eq!(leak.credential, "one", "what is filled already must not be ended");
    }
}

#[test]
fn a_field_that_goes_on_behind_what_only_begins_like_a_delimiter_is_not_filled() {
    stays("--b0\r\nContent-Disposition: form-data; name=token\r\n\r\nHERE\r\n--b01\r\n--b0--\r\n");
}

#[test]
fn a_head_that_servers_may_read_otherwise_names_no_field() {
    let form = |head: &str| format!("--b0\r\n{head}\r\n\r\nHERE\r\n--b0--\r\n");
    for head in [
        "Content-Disposition: form-data; name*=utf-8''token",
        "Content-Disposition: form-data; name=token; name*=utf-8''x",
        "Content-Disposition: form-data; name*=utf-8''x; name=token",
        "Content-Disposition: form-data; name*0=token",
        "Content-Disposition: form-data; name=token; NAME*0*=x",
        "Content-Disposition: form-data; name=token; name=token",
        "Content-Disposition: form-data; name=token; Name=x",
        "Content-Disposition: form-data; name=\"token\"x",
        "Content-Disposition: form-data; name=token x",
        "Content-Disposition: form-data; name=token; x",
        "Content-Disposition: form-data; name=token; filename*=utf-8''x",
        "Content-Disposition: form-data; name=token\r\nContent-Disposition: form-data; name=x",
        "Content-Disposition: form-data; name=token\r\n ; filename=x",
        "Content-Disposition: form-data; name=token\r\n\t; name=x",
        "Content-Disposition: form-data;\r\n name=token",
        "X: y\r\n Content-Disposition: form-data; name=token",
        " X: y\r\nContent-Disposition: form-data; name=token",
        "X: y\nContent-Disposition: form-data; name=token",
        "X: y\rContent-Disposition: form-data; name=token",
        "Content-Disposition: form-data; name=token\nX: y",
        "Content-Disposition: form-data; name=token\rX: y",
        "Content-Disposition: form-data; name=token\r\nX: y\n",
        "Content-Disposition: form-data; name=token\r",
        "\nContent-Disposition: form-data; name=token",
    ] {
        stays(&form(head));
    }
    for head in [
        "Content-Disposition: form-data; name=token",
        "content-disposition:form-data;name=\"token\"",
        "X: y\r\nContent-Disposition: form-data; x=\"; name*=y\"; NAME=\"token\" \r\nContent-Type: text/plain",
    ] {
        let (mut fill, text) = multipart("token");
        let out = run(&mut fill, form(head).replace("HERE", &text).as_bytes(), &[5]).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            form(head).replace("HERE", SECRET)
        );
    }
}
