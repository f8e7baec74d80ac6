#!/bin/sh
# Makes the certificates of these tests, valid from 2020 to 2120. Run in this folder.
# The keys are public: they protect nothing.
set -eu
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

cat > "$scratch/ca.cnf" <<END
[ca]
default_ca = test
[test]
database = $scratch/index.txt
new_certs_dir = $scratch
serial = $scratch/serial
default_md = sha256
policy = any
unique_subject = no
[any]
commonName = supplied
[req]
distinguished_name = name
[name]
END
: > "$scratch/index.txt"
echo 01 > "$scratch/serial"

key() { # as PKCS#8, the only form that Java reads
    openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:prime256v1 -out "$1"
}

sign() { # name, common name, key of the signer, extension, further options
    openssl req -new -key "$3" -config "$scratch/ca.cnf" -subj "/CN=$2" \
        -out "$scratch/request"
    printf '%s\n' "$4" > "$scratch/extension"
    shift 4
    openssl ca -batch -notext -config "$scratch/ca.cnf" -keyfile "$scratch/ca.key" \
        -startdate 20200101000000Z -enddate 21200101000000Z \
        -extfile "$scratch/extension" -in "$scratch/request" "$@"
}

key "$scratch/ca.key"
sign ca "test CA" "$scratch/ca.key" "basicConstraints=critical,CA:true
subjectKeyIdentifier=hash" -selfsign -out ca.pem

leaf() { # name, common name, extension
    key "$1.key"
    sign "$1" "$2" "$1.key" "$3
authorityKeyIdentifier=keyid" -cert ca.pem -out "$1.pem"
}

leaf local localhost "subjectAltName=DNS:localhost,IP:127.0.0.1"
leaf elsewhere broker.example "subjectAltName=DNS:broker.example"
leaf wildcard other.example "subjectAltName=IP:127.0.0.2,DNS:*.example,DNS:b"
leaf unnamed proxy.example "keyUsage=digitalSignature"  # only in its subject
leaf client client "extendedKeyUsage=clientAuth"
key expired.key
sign expired localhost expired.key "subjectAltName=DNS:localhost
authorityKeyIdentifier=keyid" -cert ca.pem -enddate 20210101000000Z -out expired.pem
openssl ec -in client.key -aes128 -passout pass:canary-password -out client-locked.key
