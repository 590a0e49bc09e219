START=${1:?"a word for this start: the same on every node, another one each time, such as the time of day"}
# IS_HOST=1 on the first node, 0 on the others, and LOCAL_ADDR help where a node does not know its own name.
@{meeting}
