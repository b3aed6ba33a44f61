# moto as a server of S3, STS and IAM that checks each signature, with secrets too where it is told one, and boto3 as its client with whatever keys the environment has
# (case T06).
import json
import os
import sys
import threading


def serve():
    # The host's name is no bucket's; parts of an upload may be small here.
    os.environ.update(S3_IGNORE_SUBDOMAIN_BUCKETNAME="true", S3_UPLOAD_PART_MIN_SIZE="1000")
    import boto3
    from moto import settings
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    port = server.get_host_and_port()[1]
    at = f"http://127.0.0.1:{port}"
    common = dict(endpoint_url=at, region_name="us-east-1", aws_access_key_id="nobody", aws_secret_access_key="nothing")
    iam = boto3.client("iam", **common)
    everything = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
    iam.create_user(UserName="agent")
    iam.put_user_policy(UserName="agent", PolicyName="all", PolicyDocument=json.dumps(everything))
    key = iam.create_access_key(UserName="agent")["AccessKey"]
    keys = {name: key[name] for name in ("AccessKeyId", "SecretAccessKey")}
    if len(sys.argv) > 2:
        secret = sys.argv[2]
        boto3.client("secretsmanager", **common).create_secret(Name="agents/model", SecretString=json.dumps({"key": secret}))
        boto3.client("ssm", **common).put_parameter(Name="/agents/whole", Value=secret[::-1], Type="SecureString")
    # From here on every request must be signed.
    settings.INITIAL_NO_AUTH_ACTION_COUNT = 0
    print(json.dumps({"port": port, "keys": keys}), flush=True)
    # Until it is killed.
    threading.Event().wait()


def ask(at, proxy, ca):
    import boto3
    from boto3.s3.transfer import TransferConfig
    from botocore.config import Config
    from botocore.exceptions import ClientError

    config = Config(proxies={"https": proxy}, retries={"total_max_attempts": 1}, s3={"addressing_style": "path"})
    common = dict(endpoint_url=f"https://{at}", region_name="us-east-1", verify=ca, config=config)
    s3, sts, iam = (boto3.client(name, **common) for name in ("s3", "sts", "iam"))
    assert sts.get_caller_identity()["Arn"].endswith(":user/agent")
    s3.create_bucket(Bucket="things")
    content = bytes(range(256)) * 8000
    s3.put_object(Bucket="things", Key="folder/name.bin", Body=content, Metadata={"note": "two words"})
    piece = s3.get_object(Bucket="things", Key="folder/name.bin", Range="bytes=256-515")
    assert piece["Body"].read() == content[256:516]
    with open(ca + ".content", "wb") as file:
        file.write(content)
    transfer = TransferConfig(multipart_threshold=1000, multipart_chunksize=1 << 20, max_concurrency=2)
    s3.upload_file(ca + ".content", "things", "in parts", Config=transfer)
    assert s3.get_object(Bucket="things", Key="in parts")["Body"].read() == content
    assert [user["UserName"] for user in iam.list_users()["Users"]] == ["agent"]
    # What the service says of the keys is said of the placeholders.
    named = [key["AccessKeyId"] for key in iam.list_access_keys(UserName="agent")["AccessKeyMetadata"]]
    assert named == [os.environ["AWS_ACCESS_KEY_ID"]], named
    wrong = boto3.client("sts", aws_access_key_id="AKIAWRONGWRONGWRONG1", aws_secret_access_key="wrong", **common)
    try:
        wrong.get_caller_identity()
    except ClientError as error:
        assert "InvalidClientTokenId" in str(error), error
    else:
        raise AssertionError("the server checks nothing")
    print("all was taken")


if sys.argv[1] == "serve":
    serve()
else:
    ask(*sys.argv[2:])
