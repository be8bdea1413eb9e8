# The site on which the commands of a page run (tests/it/book/stage.rs): a network of its own, in which the addresses of the pages exist.
#
#   192.0.2.7:443    the BMC of node-0: a simulated one, with a fake machine behind it
#   192.0.2.10       this server
#   192.0.2.20:80    images.example, with the images that the pages name
#
# $BOOK is the folder of what is noted, one file a block. Nothing outside of this network is reached, and nothing of it outlives the test.
set -euo pipefail
# Each program that a page leaves running is a group of processes, as at a terminal, where Ctrl-C ends all of it.
set -m

ip link set lo up
for address in 192.0.2.7 192.0.2.10 192.0.2.20; do ip address add "$address/32" dev lo; done
# By this route a program finds this server's own address.
ip route add default dev lo src 192.0.2.10
mount --bind "$BOOK/hosts" /etc/hosts

declare -A running=()

# What a page goes on after: the program that was left running has said the words, or this fails.
background() { # BLOCK PID WORDS
    running[$1]=$2
    # The program may not have opened it yet.
    : >>"$BOOK/$1.out"
    timeout 120 grep -q -m 1 -e "$3" <(tail -n +1 --follow --sleep-interval=0.1 --pid="$2" "$BOOK/$1.out" 2>/dev/null) || {
        echo "it has not said \"$3\"" >>"$BOOK/$1.out"
        return 1
    }
}

# Ctrl-C in the terminal of that block.
ctrl_c() { # BLOCK
    local pid=${running[$1]} code=0
    unset "running[$1]"
    kill -INT -- "-$pid"
    wait "$pid" || code=$?
    # As a shell tells of a program that a signal has ended.
    [ "$code" = 0 ] || [ "$code" = 130 ] || {
        echo "it ended with exit code $code" >>"$BOOK/$1.out"
        return 1
    }
}

block() { # BLOCK
    echo "$1" >>"$BOOK/begun"
}

bmc-sim --config "$BOOK/site.json" >"$BOOK/site.out" 2>&1 &
background site "$!" '"machines"'
python3 -u -m http.server --bind 192.0.2.20 --directory "$BOOK/images" 80 >"$BOOK/web.out" 2>&1 &
background web "$!" 'Serving'
