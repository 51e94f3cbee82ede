#!/bin/sh
# Launches `beam-dpne ngrams` on Dataflow: private workers, a service account and an image of your own.
#
#   deploy/dataflow/launch.sh SETTINGS [options of beam-dpne ngrams]
#
# SETTINGS is a file like deploy/dataflow/settings.example. The options say what is released; those that
# settings decide cannot be given again. Exit status: that of beam-dpne, 2 if a setting is wrong.
set -eu

refuse() {
    echo "launch.sh: error: $1" >&2
    exit 2
}

[ $# -ge 1 ] || refuse "usage: launch.sh SETTINGS [options of beam-dpne ngrams]."
[ -f "$1" ] || refuse "SETTINGS must be a file, got $1; begin with a copy of settings.example."
case $1 in
/*) settings=$1 ;;
*) settings=./$1 ;;
esac
shift

# What the caller's environment holds is not meant.
unset PROJECT REGION STAGING TEMP SERVICE_ACCOUNT SUBNETWORK WORKER_IMAGE KMS_KEY JOB_NAME
# shellcheck source=/dev/null
. "$settings"

must_match() { # NAME VALUE PATTERN WHAT
    # shellcheck disable=SC2254
    case $2 in
    '') refuse "$1 must be set in $settings: $4." ;;
    $3) ;;
    *) refuse "$1 must be $4, got $1=$2." ;;
    esac
}

must_match PROJECT "${PROJECT-}" '[a-z]*' "the project's id"
must_match REGION "${REGION-}" '[a-z]*-*[0-9]' "a region, e.g. europe-west1"
must_match STAGING "${STAGING-}" 'gs://?*/?*' "a folder of a bucket, gs://BUCKET/FOLDER"
must_match TEMP "${TEMP-}" 'gs://?*/?*' "a folder of a bucket, gs://BUCKET/FOLDER"
must_match SERVICE_ACCOUNT "${SERVICE_ACCOUNT-}" '?*@?*.gserviceaccount.com' \
    "a service account of your own, NAME@PROJECT.iam.gserviceaccount.com"
must_match SUBNETWORK "${SUBNETWORK-}" '*regions/?*/subnetworks/?*' \
    "regions/REGION/subnetworks/NAME, or its whole URL in a shared network"
must_match WORKER_IMAGE "${WORKER_IMAGE-}" '?*/?*[:@]?*' "an image with its tag or digest"

case $SERVICE_ACCOUNT in
*-compute@developer.gserviceaccount.com)
    refuse "SERVICE_ACCOUNT must be one of your own, got the default one, which may do too much."
    ;;
esac

keyed=
for option in "$@"; do
    case ${option%%=*} in
    --run_key_file) keyed=1 ;;
    --runner | --project | --region | --staging_location | --temp_location | \
        --service_account_email | --subnetwork | --network | --use_public_ips | \
        --no_use_public_ips | --sdk_container_image | --dataflow_kms_key | --job_name)
        refuse "${option%%=*} is decided in $settings; change it there."
        ;;
    esac
done
[ -n "$keyed" ] || echo "launch.sh: without --run_key_file a fresh run key is drawn, which stays in \
$STAGING: that folder is as secret as the data." >&2

BEAM_DPNE=${BEAM_DPNE:-beam-dpne}
command -v "$BEAM_DPNE" >/dev/null || refuse "$BEAM_DPNE must be in PATH: pip install '.[gcp]', with \
the Python and the versions of the worker image."

if [ -n "${KMS_KEY-}" ]; then
    must_match KMS_KEY "$KMS_KEY" 'projects/?*/locations/?*/keyRings/?*/cryptoKeys/?*' \
        "projects/P/locations/L/keyRings/R/cryptoKeys/K"
    set -- --dataflow_kms_key "$KMS_KEY" "$@"
fi

exec "$BEAM_DPNE" ngrams \
    --runner DataflowRunner \
    --project "$PROJECT" \
    --region "$REGION" \
    --job_name "${JOB_NAME:-beam-dpne-ngrams-$(date -u +%Y%m%d-%H%M%S)}" \
    --staging_location "$STAGING" \
    --temp_location "$TEMP" \
    --service_account_email "$SERVICE_ACCOUNT" \
    --subnetwork "$SUBNETWORK" \
    --no_use_public_ips \
    --sdk_container_image "$WORKER_IMAGE" \
    --sdk_location container \
    "$@"
