# limit: 30
# Reports nothing, which is a failure.
. "$(dirname "$0")/../guest/lib.sh"

echo "some output"
